#include "encode/posterior.h"

namespace lh {

void draw_posterior(std::span<const float> posterior, int64_t channels, Random random, std::span<float> out) {
  const auto count = static_cast<size_t>(channels);
  random.fill_normal(out);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = i / count * 2 * count + i % count;
    out[i] = posterior[at] + posterior[at + count] * out[i];
  }
}

}  // namespace lh
