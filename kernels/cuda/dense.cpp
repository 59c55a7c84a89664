#include "cuda/dense.h"

#include <algorithm>

#include "lines.h"

namespace lk::cuda {

namespace {

void copy(Cuda& cuda, const lk_tensor& x, const lk_tensor& y) {
  lk_copy_block_params p{.x = x, .y = y, .extent = {}, .x_offset = {}, .y_offset = {}, .x_step = 1};
  std::copy(x.dims, x.dims + x.rank, p.extent);
  copy_block(cuda, p);
}

lk_tensor in_scratch(Cuda& cuda, lk_tensor t) {
  std::fill(t.strides, t.strides + t.rank, 0);
  t.data = cuda.scratch<std::byte>(bytes_of(t));
  return t;
}

}  // namespace

lk_tensor dense_copy(Cuda& cuda, const lk_tensor& x) {
  if (!present(x) || is_dense(x)) return x;
  const lk_tensor y = in_scratch(cuda, x);
  copy(cuda, x, y);
  return y;
}

DenseOutput::DenseOutput(Cuda& cuda, const lk_tensor& y, bool taken_as_it_lies)
    : y_(y), tensor_(taken_as_it_lies || !present(y) || is_dense(y) ? y : in_scratch(cuda, y)) {}

void DenseOutput::store(Cuda& cuda) const {
  if (tensor_.data != y_.data) copy(cuda, tensor_, y_);
}

}  // namespace lk::cuda
