// Each kind of module as rows of numbers, and DoRA on top of the sum.
#include "io/lora_delta.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"

namespace lh {
namespace {

using enum LoraPart;

constexpr int64_t elements_of_a_thread = 1 << 16;
constexpr float epsilon = std::numeric_limits<float>::epsilon();  // beside a norm, as LyCORIS and ComfyUI have it

double square_sum(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

}  // namespace

std::optional<MagnitudeAxis> magnitude_axis(const Shape& magnitude, int64_t rows, int64_t inputs) {
  const int64_t elements = magnitude.numel();
  if (magnitude.rank() == 1) return elements == rows ? std::optional(MagnitudeAxis::output) : std::nullopt;
  if (magnitude.rank() == 0) return std::nullopt;
  if (magnitude[0] == rows && elements == rows) return MagnitudeAxis::output;
  if (magnitude[0] == 1 && magnitude[1] == inputs && elements == inputs) return MagnitudeAxis::input;
  return std::nullopt;
}

LoraDelta::LoraDelta(const LoraFile& file, const LoraEntry& entry)
    : entry_(entry), scale_(static_cast<float>(entry.scale())) {
  switch (entry.kind) {
    case LoraKind::lora: products_.push_back(lora_of(file, entry)); break;
    case LoraKind::loha:
      products_.push_back(loha_of(file, entry, false));
      products_.push_back(loha_of(file, entry, true));
      break;
    case LoraKind::lokr:
      first_ = matrix(file, lokr_w1, lokr_w1_a, lokr_w1_b);
      if (entry.has(lokr_t2)) {
        const LoraProduct second = tucker_of(file, entry, lokr_t2, lokr_w2_a, lokr_w2_b);
        second_rows_ = entry.shape(lokr_w2_a)[1];
        const size_t columns = second.right.size() / static_cast<size_t>(second.rank);
        second_.resize(static_cast<size_t>(second_rows_) * columns);
        for (int64_t r = 0; r < second_rows_; ++r)
          second.row(r, std::span(second_).subspan(static_cast<size_t>(r) * columns, columns));
      } else {
        second_ = matrix(file, lokr_w2, lokr_w2_a, lokr_w2_b);
        second_rows_ = entry.has(lokr_w2) ? entry.shape(lokr_w2)[0] : entry.shape(lokr_w2_a)[0];
      }
      break;
    case LoraKind::full: first_ = values_of(file, entry, diff); break;
  }
  if (!entry.has(magnitude)) return;
  magnitude_ = values_of(file, entry, magnitude);
  magnitude_shape_ = entry.shape(magnitude);
}

std::vector<float> LoraDelta::matrix(const LoraFile& file, LoraPart whole, LoraPart left, LoraPart right) const {
  if (entry_.has(whole)) return values_of(file, entry_, whole);
  const LoraProduct both = pair_of(file, entry_, left, right);
  const size_t columns = both.right.size() / static_cast<size_t>(both.rank);
  const size_t rows = both.left.size() / static_cast<size_t>(both.rank);
  std::vector<float> out(rows * columns);
  for (size_t r = 0; r < rows; ++r) both.row(static_cast<int64_t>(r), std::span(out).subspan(r * columns, columns));
  return out;
}

void LoraDelta::row(int64_t index, std::span<float> out) const {
  switch (entry_.kind) {
    case LoraKind::lora: products_[0].row(index, out); break;
    case LoraKind::loha: {
      std::vector<float> second(out.size());
      products_[0].row(index, out);
      products_[1].row(index, second);
      for (size_t i = 0; i < out.size(); ++i) out[i] *= second[i];
      break;
    }
    case LoraKind::lokr: {
      const size_t width = second_.size() / static_cast<size_t>(second_rows_), blocks = out.size() / width;
      const float* first = first_.data() + static_cast<size_t>(index / second_rows_) * blocks;
      const float* second = second_.data() + static_cast<size_t>(index % second_rows_) * width;
      for (size_t b = 0; b < blocks; ++b)
        for (size_t i = 0; i < width; ++i) out[b * width + i] = first[b] * second[i];
      break;
    }
    case LoraKind::full:
      std::copy_n(first_.begin() + index * static_cast<int64_t>(out.size()), out.size(), out.begin());
      break;
  }
  for (float& v : out) v *= scale_;
}

void LoraDelta::add_to(const WeightRows& weight, double strength) const {
  const auto factor = static_cast<float>(strength);
  if (magnitude_.empty()) return add_plain(weight, factor);
  const auto axis = magnitude_axis(magnitude_shape_, weight.count, weight.inputs);
  if (!axis) fail(Code::internal, "{}: a magnitude {} that fits no axis", entry_.name, magnitude_shape_.text());
  if (*axis == MagnitudeAxis::output)
    add_by_row_norm(weight, factor);
  else
    add_by_input_norm(weight, factor);
}

void LoraDelta::add_plain(const WeightRows& weight, float strength) const {
  const int64_t width = weight.inputs * weight.taps;
  in_threads(weight.count, elements_of_a_thread / width + 1, [&](int64_t first, int64_t end) {
    std::vector<float> delta(static_cast<size_t>(width));
    for (int64_t r = first; r < end; ++r) {
      row(r, delta);
      const std::span<float> w = weight.row(r);
      for (size_t i = 0; i < delta.size(); ++i) w[i] += strength * delta[i];
    }
  });
}

void LoraDelta::add_by_row_norm(const WeightRows& weight, float strength) const {
  const int64_t width = weight.inputs * weight.taps;
  in_threads(weight.count, elements_of_a_thread / width + 1, [&](int64_t first, int64_t end) {
    std::vector<float> moved(static_cast<size_t>(width));
    for (int64_t r = first; r < end; ++r) {
      row(r, moved);
      const std::span<float> w = weight.row(r);
      for (size_t i = 0; i < w.size(); ++i) moved[i] += w[i];
      const float factor =
          magnitude_[static_cast<size_t>(r)] / (static_cast<float>(std::sqrt(square_sum(moved))) + epsilon);
      for (size_t i = 0; i < w.size(); ++i) w[i] += strength * (factor * moved[i] - w[i]);
    }
  });
}

// Two ways through the rows, because a norm needs all of them; the change is made twice rather than kept.
void LoraDelta::add_by_input_norm(const WeightRows& weight, float strength) const {
  const int64_t width = weight.inputs * weight.taps;
  const auto taps = static_cast<size_t>(weight.taps);
  std::vector<double> sums(static_cast<size_t>(weight.inputs));
  std::vector<float> moved(static_cast<size_t>(width));
  const auto move = [&](int64_t r, std::span<float> out) {
    row(r, out);
    const std::span<float> w = weight.row(r);
    for (size_t i = 0; i < w.size(); ++i) out[i] += w[i];
  };
  for (int64_t r = 0; r < weight.count; ++r) {
    move(r, moved);
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += square_sum(std::span(moved).subspan(c * taps, taps));
  }
  std::vector<float> factors(sums.size());
  for (size_t c = 0; c < sums.size(); ++c)
    factors[c] = magnitude_[c] / (static_cast<float>(std::sqrt(sums[c])) + epsilon);
  in_threads(weight.count, elements_of_a_thread / width + 1, [&](int64_t first, int64_t end) {
    std::vector<float> m(static_cast<size_t>(width));
    for (int64_t r = first; r < end; ++r) {
      move(r, m);
      const std::span<float> w = weight.row(r);
      for (size_t i = 0; i < w.size(); ++i) w[i] += strength * (factors[i / taps] * m[i] - w[i]);
    }
  });
}

}  // namespace lh
