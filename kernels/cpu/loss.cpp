// loss = mean over elements of weight l(d), d = prediction - target [B, ..., C]; weight of the sample or of the place.
//   squared error: l = d^2, l' = 2 d;   Huber: l = d^2 / 2 inside delta, delta (|d| - delta / 2) outside, l' = clamp(d)
//   absolute error: l = |d|, l' = sign(d);   pseudo-Huber: l = sqrt(d^2 + delta^2) - delta, l' = d / sqrt(d^2 +
//   delta^2)
// The sum is in double over runs of fixed length, so that it does not depend on the number of threads.
#include <cmath>
#include <type_traits>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

constexpr int64_t run = 4096;

template <lk_loss_kind kind>
double pointwise(double difference, double delta) {
  const double d = std::fabs(difference);
  if constexpr (kind == LK_MSE) return difference * difference;
  if constexpr (kind == LK_HUBER) return d > delta ? delta * (d - 0.5 * delta) : 0.5 * d * d;
  if constexpr (kind == LK_L1) return d;
  // sqrt(d^2 + delta^2) - delta without the loss of digits where d is small.
  if constexpr (kind == LK_PSEUDO_HUBER) return d * d / (std::sqrt(d * d + delta * delta) + delta);
}

// Without the factor 2 of the squared error.
template <lk_loss_kind kind>
float slope(float d, float delta) {
  if constexpr (kind == LK_MSE) return d;
  if constexpr (kind == LK_L1) return static_cast<float>((d > 0) - (d < 0));
  if constexpr (kind == LK_PSEUDO_HUBER) return d / std::sqrt(d * d + delta * delta);
  const float above = d > delta ? delta : d;
  return above < -delta ? -delta : above;
}

// weight: of the places, `channels` elements each, or null; `first` elements are before a and b.
struct Places {
  const float* weight;
  int64_t channels, first;
};

template <lk_loss_kind kind>
double run_loss(double delta, const float* a, const float* b, int64_t n, const Places& places) {
  double sum = 0;
  if (places.weight != nullptr) {
    for (int64_t i = 0; i < n; ++i)
      sum += static_cast<double>(places.weight[(places.first + i) / places.channels]) *
             pointwise<kind>(static_cast<double>(a[i]) - static_cast<double>(b[i]), delta);
    return sum;
  }
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += pointwise<kind>(static_cast<double>(a[i]) - static_cast<double>(b[i]), delta);
  return sum;
}

template <lk_loss_kind kind>
void run_backward(float scale, float delta, const float* a, const float* b, float* to, int64_t n,
                  const Places& places) {
  if (places.weight != nullptr) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = scale * places.weight[(places.first + i) / places.channels] * slope<kind>(a[i] - b[i], delta);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = scale * slope<kind>(a[i] - b[i], delta);
}

template <lk_loss_kind kind>
using Kind = std::integral_constant<lk_loss_kind, kind>;

template <typename Function>
void for_kind(lk_loss_kind kind, const Function& function) {
  if (kind == LK_MSE) return function(Kind<LK_MSE>());
  if (kind == LK_HUBER) return function(Kind<LK_HUBER>());
  if (kind == LK_L1) return function(Kind<LK_L1>());
  return function(Kind<LK_PSEUDO_HUBER>());
}

}  // namespace

void loss(Cpu& cpu, const lk_loss_params& p) {
  const int64_t count = numel(p.prediction), batch = p.prediction.dims[0], size = count / batch;
  const int64_t channels = p.prediction.dims[p.prediction.rank - 1];
  const int64_t runs = (size + run - 1) / run;
  const FloatIn prediction(cpu, p.prediction), target(cpu, p.target), weight(cpu, p.weight), deltas(cpu, p.deltas);
  const bool by_place = p.weight.data != nullptr && p.weight.rank > 1;
  const Scratch<double> partial(cpu, batch * runs);
  for_kind(p.kind, [&](auto kind) {
    parallel_for(cpu, batch * runs, std::min(run, size), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t sample = i / runs, start = i % runs * run, offset = sample * size + start;
        const double delta = static_cast<double>(deltas != nullptr ? deltas[sample] : p.delta);
        partial.data()[i] =
            run_loss<decltype(kind)::value>(delta, prediction + offset, target + offset, std::min(run, size - start),
                                            {by_place ? weight + 0 : nullptr, channels, offset});
      }
    });
  });
  double total = 0;
  for (int64_t b = 0; b < batch; ++b) {
    double sum = 0;
    for (int64_t i = 0; i < runs; ++i) sum += partial.data()[b * runs + i];
    total += weight != nullptr && !by_place ? static_cast<double>(weight[b]) * sum : sum;
  }
  *static_cast<float*>(p.loss.data) = static_cast<float>(total / static_cast<double>(count));
}

void loss_backward(Cpu& cpu, const lk_loss_backward_params& p) {
  const int64_t count = numel(p.prediction), size = count / p.prediction.dims[0];
  const int64_t channels = p.prediction.dims[p.prediction.rank - 1];
  const FloatIn prediction(cpu, p.prediction), target(cpu, p.target), weight(cpu, p.weight), deltas(cpu, p.deltas);
  const FloatOut out(cpu, p.dprediction);
  const bool by_place = p.weight.data != nullptr && p.weight.rank > 1;
  const double mean = static_cast<double>(*static_cast<const float*>(p.dloss.data)) / static_cast<double>(count);
  for_kind(p.kind, [&](auto kind) {
    parallel_for(cpu, (count + run - 1) / run, run, [&](int64_t first, int64_t last) {
      int64_t begin = first * run;
      const int64_t end = std::min(count, last * run);
      while (begin < end) {  // piece by piece of one sample, whose factor is constant
        const int64_t sample = begin / size, stop = std::min(end, (sample + 1) * size);
        const double factor = weight != nullptr && !by_place ? mean * static_cast<double>(weight[sample]) : mean;
        const float scale = static_cast<float>(p.kind == LK_MSE ? 2.0 * factor : factor);
        run_backward<decltype(kind)::value>(scale, deltas != nullptr ? deltas[sample] : p.delta, prediction + begin,
                                            target + begin, out + begin, stop - begin,
                                            {by_place ? weight + 0 : nullptr, channels, begin});
        begin = stop;
      }
    });
  });
}

}  // namespace lk::cpu
