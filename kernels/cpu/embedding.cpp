// y[i, :] = table[ids[i], :]. Only the chosen rows are converted.
#include "cpu/convert.h"

namespace lk::cpu {

void embedding(Cpu& cpu, const lk_embedding_params& p) {
  const int64_t entries = p.table.dims[0], depth = p.table.dims[1], count = numel(p.ids);
  const auto* const ids = static_cast<const int32_t*>(p.ids.data);
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= entries) {
      throw Error(LK_E_INVALID, "embedding: ids[" + std::to_string(i) + "]: expected 0 to " +
                                    std::to_string(entries - 1) + ", found " + std::to_string(ids[i]));
    }
  }
  const FloatOut y(cpu, p.y);
  const auto* const table = static_cast<const char*>(p.table.data);
  const int64_t row_bytes = depth * lk_dtype_size(p.table.dtype);
  const Cpu one_thread(1);
  parallel_for(cpu, count, depth, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      widen(one_thread, table + ids[i] * row_bytes, p.table.dtype, y + i * depth, depth);
    }
  });
}

}  // namespace lk::cpu
