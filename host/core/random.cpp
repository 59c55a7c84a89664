// Philox counters to uniform and normal numbers.
#include "core/random.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace lh {
namespace {

// The counter's words: index of the block, sample, step (low), and purpose with the high part of the step.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

}  // namespace

Random::Random(uint64_t seed, Purpose purpose, uint64_t step, uint32_t sample)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, sample, static_cast<uint32_t>(step),
               static_cast<uint32_t>(purpose) << 24 | static_cast<uint32_t>((step >> 32) & 0xffffff)} {}

uint32_t Random::next() {
  if (used_ == 4) {
    block_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

void Random::skip(uint32_t blocks) {
  counter_[0] += blocks;
  used_ = 4;
}

double Random::uniform() {
  const uint64_t high = next() >> 5, low = next() >> 6;  // 53 bits, shifted by half a unit off zero
  return (static_cast<double>(high * 67108864 + low) + 0.5) / 9007199254740992.0;
}

double Random::normal() {
  const double u = uniform(), v = uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t Random::below(uint64_t n) { return static_cast<uint64_t>(uniform() * static_cast<double>(n)); }

void Random::fill_normal(std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 2) {
    const double u = uniform(), v = uniform();
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

void Random::shuffle(std::vector<int64_t>& items) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
}

}  // namespace lh
