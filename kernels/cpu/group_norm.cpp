// Group norm of x [N, P, C] (P: all axes between): statistics over P and the channels of a group.
//   y = xh w + b, xh = (x - mean) rstd
// Backward, with g = dy w:  dx = rstd (g - mean(g) - xh mean(g xh)),  dw = sum dy xh,  db = sum dy.
//
// Channels are the fastest axis, so every pass sums by columns in double and then joins the columns of a group. The
// variance is summed around the mean in a second pass.
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/row_math.h"

namespace lk::cpu {

namespace {

// mean, rstd [C] of one image x [P, C], equal within a group.
void statistics(Cpu& cpu, const float* x, int64_t pixels, int64_t channels, int64_t groups, float eps, float* mean,
                float* rstd) {
  const int64_t width = channels / groups;
  const double count = static_cast<double>(pixels * width);
  const Scratch<double> sums(cpu, channels);
  const auto join = [&](float* out, auto&& finish) {
    for (int64_t g = 0; g < groups; ++g) {
      double total = 0;
      for (int64_t c = g * width; c < (g + 1) * width; ++c) total += sums.data()[c];
      std::fill_n(out + g * width, width, static_cast<float>(finish(total / count)));
    }
  };
  column_sums(cpu, pixels, channels, sums.data(), [=](int64_t row, double* own) {
    const float* const values = x + row * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) own[c] += static_cast<double>(values[c]);
  });
  join(mean, [](double value) { return value; });
  column_sums(cpu, pixels, channels, sums.data(), [=](int64_t row, double* own) {
    const float* const values = x + row * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const double d = static_cast<double>(values[c] - mean[c]);
      own[c] += d * d;
    }
  });
  join(rstd, [=](double value) { return 1.0 / std::sqrt(value + static_cast<double>(eps)); });
}

}  // namespace

void group_norm(Cpu& cpu, const lk_group_norm_params& p) {
  const int64_t images = p.x.dims[0], channels = last_dim(p.x), pixels = numel(p.x) / (images * channels);
  const FloatIn x(cpu, p.x), weight(cpu, p.weight), bias(cpu, p.bias);
  const FloatOut y(cpu, p.y);
  const Scratch<float> scratch(cpu, 4 * channels);
  float *const mean = scratch.data(), *const rstd = mean + channels;
  float *const factor = rstd + channels, *const shift = factor + channels;
  for (int64_t n = 0; n < images; ++n) {
    const int64_t offset = n * pixels * channels;
    const float* const from = x + offset;
    float* const to = y + offset;
    statistics(cpu, from, pixels, channels, p.groups, p.eps, mean, rstd);
    for (int64_t c = 0; c < channels; ++c) {
      factor[c] = weight != nullptr ? rstd[c] * weight[c] : rstd[c];
      shift[c] = bias != nullptr ? bias[c] : 0.0f;
    }
    parallel_for(cpu, pixels, channels, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* const values = from + row * channels;
        float* const out = to + row * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) out[c] = (values[c] - mean[c]) * factor[c] + shift[c];
      }
    });
  }
}

void group_norm_backward(Cpu& cpu, const lk_group_norm_backward_params& p) {
  const int64_t images = p.x.dims[0], channels = last_dim(p.x), pixels = numel(p.x) / (images * channels);
  const int64_t width = channels / p.groups;
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), weight(cpu, p.weight);
  const FloatOut dx(cpu, p.dx), dweight(cpu, p.dweight), dbias(cpu, p.dbias);
  const Scratch<float> scratch(cpu, 5 * channels);
  float *const mean = scratch.data(), *const rstd = mean + channels, *const w = rstd + channels;
  float *const mean_g = w + channels, *const mean_xh = mean_g + channels;
  const Scratch<double> sums(cpu, 2 * channels), totals(cpu, 2 * channels);  // of dy xh, then of dy
  std::fill_n(totals.data(), 2 * channels, 0.0);
  for (int64_t c = 0; c < channels; ++c) w[c] = weight != nullptr ? weight[c] : 1.0f;
  for (int64_t n = 0; n < images; ++n) {
    const int64_t offset = n * pixels * channels;
    const float *const g = dy + offset, *const from = x + offset;
    statistics(cpu, from, pixels, channels, p.groups, p.eps, mean, rstd);
    column_sums(cpu, pixels, 2 * channels, sums.data(), [=](int64_t row, double* own) {
      const float *const g_row = g + row * channels, *const values = from + row * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        own[c] += static_cast<double>(g_row[c]) * static_cast<double>((values[c] - mean[c]) * rstd[c]);
        own[channels + c] += static_cast<double>(g_row[c]);
      }
    });
    for (int64_t c = 0; c < 2 * channels; ++c) totals.data()[c] += sums.data()[c];
    if (dx == nullptr) continue;
    const double count = static_cast<double>(pixels * width);
    for (int64_t group = 0; group < p.groups; ++group) {
      double sum_xh = 0, sum_g = 0;
      for (int64_t c = group * width; c < (group + 1) * width; ++c) {
        sum_xh += static_cast<double>(w[c]) * sums.data()[c];
        sum_g += static_cast<double>(w[c]) * sums.data()[channels + c];
      }
      std::fill_n(mean_xh + group * width, width, static_cast<float>(sum_xh / count));
      std::fill_n(mean_g + group * width, width, static_cast<float>(sum_g / count));
    }
    float* const to = dx + offset;
    parallel_for(cpu, pixels, channels, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float *const g_row = g + row * channels, *const values = from + row * channels;
        float* const out = to + row * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          const float xh = (values[c] - mean[c]) * rstd[c];
          out[c] = rstd[c] * (g_row[c] * w[c] - mean_g[c] - xh * mean_xh[c]);
        }
      }
    });
  }
  for (int64_t c = 0; c < channels; ++c) {
    if (dweight != nullptr) dweight[c] = static_cast<float>(totals.data()[c]);
    if (dbias != nullptr) dbias[c] = static_cast<float>(totals.data()[channels + c]);
  }
}

}  // namespace lk::cpu
