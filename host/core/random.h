// Random numbers from a counter: a draw is a pure function of (seed, purpose, step, sample, index), so nothing has to
// be saved to resume. Philox-4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lh {

enum class Purpose : uint32_t {
  adapter_init = 1,
  order = 2,
  noise = 3,
  timestep = 4,
  posterior = 5,
  caption_dropout = 6,
  sample_noise = 7,
  sampler_noise = 8,  // that a sampler adds on its way
  noise_offset = 9,
  caption = 10,
  caption_variant = 11,
  multires_noise = 12,
  input_perturbation = 13,
  validation = 14,
  augment = 15,
  augment_variant = 16,
  inpaint_mask = 17,
  inpaint = 18,            // which of an image's masks
  inpaint_posterior = 19,  // of what such a mask leaves
  sound_posterior = 20,
  sound_noise = 21,
};

class Random {
 public:
  Random(uint64_t seed, Purpose purpose, uint64_t step, uint32_t sample);
  double uniform();            // in (0, 1)
  double normal();             // Box-Muller
  uint64_t below(uint64_t n);  // in [0, n)
  void fill_normal(std::span<float> out);
  void shuffle(std::vector<int64_t>& items);  // Fisher-Yates
  // Goes on as if so many more blocks of numbers had been drawn from the beginning. A block is two uniform numbers, or
  // one normal one.
  static constexpr int64_t uniforms_of_block = 2, normals_of_block = 1;
  void skip(uint32_t blocks);

 private:
  uint32_t next();
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace lh
