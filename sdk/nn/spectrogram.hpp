// Log-mel spectrograms of sound, in float32: the logarithm of how strong each band of frequencies is at each moment.
// Bands are as wide as an ear tells them apart (the mel scale).
//
//   m_f(t) = |sum over n of window(n) x(hop t + n) e^(-2 pi i f n / N)|;  log(max(sum over f of band_b(f) m_f(t),
//   1e-5))
//
// A Fourier transform of one length at each hop is a convolution with sines and cosines; of x laid out in rows of a hop
// its kernel is as many rows as the window has hops.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// Hann's window times cosines and then sines of N / 2 + 1 frequencies: [N + 2, 1, N]
inline Value fourier_basis(Graph& g, int64_t length) {
  const int64_t frequencies = length / 2 + 1;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(2 * frequencies * length));
  const auto angle = [&](int64_t f, int64_t n) {
    return 2 * std::numbers::pi * static_cast<double>(f * n % length) / static_cast<double>(length);
  };
  for (const bool sines : {false, true})
    for (int64_t f = 0; f < frequencies; ++f)
      for (int64_t n = 0; n < length; ++n) {
        const double window = 0.5 - 0.5 * std::cos(angle(1, n)), turn = angle(f, n);
        out.push_back(static_cast<float>(window * (sines ? -std::sin(turn) : std::cos(turn))));
      }
  return g.constant({2 * frequencies, 1, length}, out);
}

// Bands of Slaney's mel scale from 0 to half of `rate`, triangles of equal area: [bands, frequencies]
inline Value mel_bands(Graph& g, int64_t bands, int64_t frequencies, double rate) {
  // Even steps of 200/3 Hz up to 1000, behind it 27 steps for a factor of 6.4.
  const double linear = 200.0 / 3, knee = 1000 / linear, step = std::log(6.4) / 27;
  const double top = knee + std::log(rate / 2 / 1000) / step;
  std::vector<double> edges;
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double mel = top * static_cast<double>(i) / static_cast<double>(bands + 1);
    edges.push_back(mel < knee ? mel * linear : 1000 * std::exp(step * (mel - knee)));
  }
  std::vector<float> out;
  for (size_t b = 0; b < static_cast<size_t>(bands); ++b)
    for (int64_t f = 0; f < frequencies; ++f) {
      const double hertz = rate / 2 * static_cast<double>(f) / static_cast<double>(frequencies - 1);
      const double rises = (hertz - edges[b]) / (edges[b + 1] - edges[b]);
      const double falls = (edges[b + 2] - hertz) / (edges[b + 2] - edges[b + 1]);
      out.push_back(static_cast<float>(std::max(0.0, std::min(rises, falls)) * 2 / (edges[b + 2] - edges[b])));
    }
  return g.constant({bands, frequencies}, out);
}

// x f32 [B, n hop, C], basis f32 [2 F, 1, N], bands f32 [M, F] -> [B, frames, C, M], a frame for each window of x that
// is whole once it is filled up to hops.
inline Value log_mel(Graph& g, Value x, Value basis, Value bands, int64_t hop) {
  const Dims d = g.shape(x), w = g.shape(basis);
  const int64_t hops = (w[2] + hop - 1) / hop, frequencies = w[0] / 2;
  basis = g.reshape(g.pad(basis, {0, 0, 0}, {0, 0, hops * hop - w[2]}), {w[0], hops, hop});
  basis = g.reshape(g.permute(basis, {0, 2, 1}), {w[0], hop, hops, 1});
  x = g.permute(g.reshape(x, {d[0], d[1] / hop, hop, d[2]}), {0, 1, 3, 2});
  x = g.square(g.conv2d(x, basis));  // [B, frames, C, 2 F]
  x = g.sqrt(g.add(g.slice(x, -1, 0, frequencies), g.slice(x, -1, frequencies, frequencies)));
  return g.log(g.clamp(g.linear(x, bands), 1e-5, 3e38));
}

}  // namespace lora_host::nn
