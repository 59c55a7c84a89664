// loss = mean over elements of weight[b] l(d), d = prediction - target [B, ...].
//   squared error: l = d^2, l' = 2 d;   Huber: l = d^2 / 2 inside delta, delta (|d| - delta / 2) outside, l' = clamp(d)
// The sum is in double over runs of fixed length, so that it does not depend on the number of threads.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

constexpr int64_t run = 4096;

double run_loss(lk_loss_kind kind, float delta, const float* a, const float* b, int64_t n) {
  double sum = 0;
  if (kind == LK_MSE) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      sum += d * d;
    }
  } else {
    const double limit = static_cast<double>(delta);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
      const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      sum += d > limit ? limit * (d - 0.5 * limit) : 0.5 * d * d;
    }
  }
  return sum;
}

}  // namespace

void loss(Cpu& cpu, const lk_loss_params& p) {
  const int64_t count = numel(p.prediction), batch = p.prediction.dims[0], size = count / batch;
  const int64_t runs = (size + run - 1) / run;
  const FloatIn prediction(cpu, p.prediction), target(cpu, p.target), weight(cpu, p.weight);
  const Scratch<double> partial(cpu, batch * runs);
  parallel_for(cpu, batch * runs, std::min(run, size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i % runs * run, offset = i / runs * size + start;
      partial.data()[i] = run_loss(p.kind, p.delta, prediction + offset, target + offset, std::min(run, size - start));
    }
  });
  double total = 0;
  for (int64_t b = 0; b < batch; ++b) {
    double sum = 0;
    for (int64_t i = 0; i < runs; ++i) sum += partial.data()[b * runs + i];
    total += weight != nullptr ? static_cast<double>(weight[b]) * sum : sum;
  }
  *static_cast<float*>(p.loss.data) = static_cast<float>(total / static_cast<double>(count));
}

void loss_backward(Cpu& cpu, const lk_loss_backward_params& p) {
  const int64_t count = numel(p.prediction), size = count / p.prediction.dims[0];
  const FloatIn prediction(cpu, p.prediction), target(cpu, p.target), weight(cpu, p.weight);
  const FloatOut out(cpu, p.dprediction);
  const double mean = static_cast<double>(*static_cast<const float*>(p.dloss.data)) / static_cast<double>(count);
  const bool squared = p.kind == LK_MSE;
  const float delta = p.delta;
  parallel_for(cpu, (count + run - 1) / run, run, [&](int64_t first, int64_t last) {
    const float *const a = prediction, *const b = target;
    float* const to = out;
    int64_t begin = first * run;
    const int64_t end = std::min(count, last * run);
    while (begin < end) {  // piece by piece of one sample, whose factor is constant
      const int64_t sample = begin / size, stop = std::min(end, (sample + 1) * size);
      const double factor = weight != nullptr ? mean * static_cast<double>(weight[sample]) : mean;
      const float scale = static_cast<float>(squared ? 2.0 * factor : factor);
      if (squared) {
#pragma omp simd
        for (int64_t i = begin; i < stop; ++i) to[i] = scale * (a[i] - b[i]);
      } else {
#pragma omp simd
        for (int64_t i = begin; i < stop; ++i) {
          const float d = a[i] - b[i];
          const float above = d > delta ? delta : d;
          to[i] = scale * (above < -delta ? -delta : above);
        }
      }
      begin = stop;
    }
  });
}

}  // namespace lk::cpu
