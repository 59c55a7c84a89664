// Tensors as rows of a batch.
#pragma once

#include <algorithm>
#include <vector>

#include "core/tensor.h"

namespace lh {

// Several [n, ...] tensors of one shape, one after another: [B n, ...].
inline HostTensor stack_rows(const std::vector<const HostTensor*>& rows) {
  std::vector<int64_t> dims(rows[0]->desc.shape.dims().begin(), rows[0]->desc.shape.dims().end());
  dims[0] *= static_cast<int64_t>(rows.size());
  HostTensor out(Desc{rows[0]->desc.dtype, Shape(dims)});
  auto at = out.data.begin();
  for (const HostTensor* row : rows) at = std::ranges::copy(row->data, at).out;
  return out;
}

// Row `index` of [B, ...] as [1, ...].
inline HostTensor row_of(const HostTensor& batch, int64_t index) {
  std::vector<int64_t> dims(batch.desc.shape.dims().begin(), batch.desc.shape.dims().end());
  dims[0] = 1;
  HostTensor out(Desc{batch.desc.dtype, Shape(dims)});
  const auto bytes = static_cast<int64_t>(out.data.size());
  std::copy_n(batch.data.begin() + index * bytes, bytes, out.data.begin());
  return out;
}

// The first `count` rows of [1, n, ...] as [1, count, ...].
inline HostTensor first_rows(const HostTensor& all, int64_t count) {
  std::vector<int64_t> dims(all.desc.shape.dims().begin(), all.desc.shape.dims().end());
  dims[1] = count;
  HostTensor out(Desc{all.desc.dtype, Shape(dims)});
  std::copy_n(all.data.begin(), out.data.size(), out.data.begin());
  return out;
}

}  // namespace lh
