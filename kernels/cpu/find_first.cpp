// index[b] = the first place of `value` in ids[b, :], else the last place.
#include "cpu/convert.h"

namespace lk::cpu {

void find_first(Cpu&, const lk_find_first_params& p) {
  const int64_t length = p.ids.dims[1];
  const auto* const ids = static_cast<const int32_t*>(p.ids.data);
  auto* const index = static_cast<int32_t*>(p.index.data);
  for (int64_t b = 0; b < p.ids.dims[0]; ++b) {
    const int32_t* const row = ids + b * length;
    const int64_t place = std::find(row, row + length, p.value) - row;
    index[b] = static_cast<int32_t>(std::min(place, length - 1));
  }
}

}  // namespace lk::cpu
