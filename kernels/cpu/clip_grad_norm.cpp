// norm = sqrt(sum of squares over all gradients) / loss_scale; gradients *= min(1, max / norm) / loss_scale.
// The gradients are cut into runs of fixed length, whose sums are added in order: the norm does not depend on the
// number of threads, and many small tensors share the threads as well as one large tensor does.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

constexpr int64_t run_of_squares = 8192;

struct Run {
  float* data;
  int64_t count;
  double squares;
};

double squares(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

void clip_grad_norm(Cpu& cpu, const lk_clip_grad_norm_params& p) {
  int64_t runs = 0;
  for (int64_t t = 0; t < p.count; ++t) runs += (numel(p.gradients[t]) + run_of_squares - 1) / run_of_squares;
  const Scratch<Run> scratch(cpu, runs);
  Run* const list = scratch.data();
  int64_t next = 0;
  for (int64_t t = 0; t < p.count; ++t) {
    float* const data = static_cast<float*>(p.gradients[t].data);
    const int64_t count = numel(p.gradients[t]);
    for (int64_t begin = 0; begin < count; begin += run_of_squares) {
      list[next++] = {data + begin, std::min(run_of_squares, count - begin), 0.0};
    }
  }
  parallel_for(cpu, runs, run_of_squares, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) list[i].squares = squares(list[i].data, list[i].count);
  });
  double sum = 0;
  for (int64_t i = 0; i < runs; ++i) sum += list[i].squares;
  const double inverse_scale =
      p.loss_scale.data != nullptr ? 1.0 / static_cast<double>(*static_cast<const float*>(p.loss_scale.data)) : 1.0;
  const double norm = inverse_scale * std::sqrt(sum);
  *static_cast<float*>(p.norm.data) = static_cast<float>(norm);
  if (!std::isfinite(static_cast<float>(norm))) return;
  double factor = inverse_scale;
  if (p.max_norm > 0) factor *= std::min(1.0, static_cast<double>(p.max_norm) / (norm + 1e-6));
  const float scale = static_cast<float>(factor);
  if (scale == 1.0f) return;
  parallel_for(cpu, runs, run_of_squares, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const data = list[i].data;
#pragma omp simd
      for (int64_t j = 0; j < list[i].count; ++j) data[j] *= scale;
    }
  });
}

}  // namespace lk::cpu
