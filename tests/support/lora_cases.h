// A small model's names, and every kind of adapter on it with the change that its matrices make in float64.
#pragma once

#include <cmath>
#include <vector>

#include "support/io_files.h"

namespace lh::test {

inline constexpr const char* lora_yaml = R"(
components:
  denoiser:
    lora:
      kohya: lora_unet_
      diffusers: "transformer."
      native: "diffusion_model."
      parts: [{name: "single.{i}.linear1_qkv", of: "single.{i}.linear1", rows: [0, 3]}]
    marker: blocks.0.qkv.weight
    diffusers:
      - {native: "blocks.{i}.qkv", from: ["t.{i}.attn.to_q", "t.{i}.attn.to_k", "t.{i}.attn.to_v"]}
      - {native: "blocks.{i}.proj", from: "t.{i}.attn.to_out.0"}
      - {native: "blocks.{i}.mod", from: "t.{i}.norm1.linear", how: swap_halves}
      - {native: "single.{i}.linear1", from: ["s.{i}.attn.to_q", "s.{i}.attn.to_k", "s.{i}.attn.to_v", "s.{i}.proj_mlp"]}
      - {native: "res.{i}.conv", from: "resnets.{i}.conv1"}
      - {native: "res.{i}.skip", from: "resnets.{i}.conv_shortcut", how: conv1x1}
      - {native: "res.{i}.norm", from: "resnets.{i}.norm1"}
  clip:
    lora: {kohya: [lora_te1_, lora_te_], diffusers: "text_encoder.", native: "text_encoders.clip.transformer."}
    config: clip_path
    help: The encoder.
    marker: text_model.layers.0.fc1.weight
    diffusers:
      - {native: "text_model.{*}", from: "text_model.{*}", exact: true}
      - {native: "text_model.layers.{i}.fc1", from: "layers.{i}.fc1"}
)";

inline HostTensor wave(Shape shape, double phase) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(0.5 * std::sin(phase + 0.7 * static_cast<double>(i)));
  return floats(std::move(shape), values);
}

// A matrix in float64, and the products that adapters are made of.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(static_cast<size_t>(rows * columns));
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

inline Matrix matrix(const HostTensor& t) {
  Matrix m{t.desc.shape[0], t.desc.shape.with(0, 1).numel()};
  for (size_t i = 0; i < m.values.size(); ++i) m.values[i] = t.as<float>()[i];
  return m;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t k = 0; k < a.columns; ++k) out.at(i, j) += a.at(i, k) * b.at(k, j);
  return out;
}

inline Matrix operator*(double s, Matrix m) {
  for (double& v : m.values) v *= s;
  return m;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

inline Matrix hadamard(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] *= b.values[i];
  return a;
}

inline Matrix kron(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows * b.rows, a.columns * b.columns};
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.columns; ++j)
      out.at(i, j) = a.at(i / b.rows, j / b.columns) * b.at(i % b.rows, j % b.columns);
  return out;
}

// sum_ij core[i, j, tap] a[i, out] b[j, in] as [out, in taps].
inline Matrix tucker(const HostTensor& core, const Matrix& a, const Matrix& b) {
  const Shape& s = core.desc.shape;
  const int64_t taps = s[2] * s[3];
  Matrix out{a.columns, b.columns * taps};
  for (int64_t o = 0; o < a.columns; ++o)
    for (int64_t c = 0; c < b.columns; ++c)
      for (int64_t t = 0; t < taps; ++t)
        for (int64_t i = 0; i < s[0]; ++i)
          for (int64_t j = 0; j < s[1]; ++j)
            out.at(o, c * taps + t) +=
                static_cast<double>(core.as<float>()[static_cast<size_t>((i * s[1] + j) * taps + t)]) * a.at(i, o) *
                b.at(j, c);
  return out;
}

inline Matrix transposed(const Matrix& m) {
  Matrix out{m.columns, m.rows};
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.columns; ++j) out.at(j, i) = m.at(i, j);
  return out;
}

// ||row||, or the norm over all rows and taps of one input.
inline double norm(const Matrix& m, int64_t row, int64_t input, int64_t taps) {
  double sum = 0;
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.columns; ++c)
      if (row >= 0 ? r == row : c / taps == input) sum += m.at(r, c) * m.at(r, c);
  return std::sqrt(sum);
}

// The model of lora_yaml.
inline std::vector<Given> base_tensors() {
  return {{"blocks.0.qkv.weight", wave({12, 4}, 1)},    {"blocks.0.qkv.bias", wave({12}, 2)},
          {"blocks.0.proj.weight", wave({4, 4}, 3)},    {"blocks.0.mod.weight", wave({8, 4}, 4)},
          {"blocks.0.mod.bias", wave({8}, 14)},         {"single.3.linear1.weight", wave({28, 4}, 5)},
          {"res.1.conv.weight", wave({6, 4, 3, 3}, 6)}, {"res.1.skip.weight", wave({6, 4, 1, 1}, 7)},
          {"res.1.norm.weight", wave({6}, 8)}};
}

struct Algebra {
  const char *what, *weight;
  std::vector<Given> tensors;  // suffixes
  Matrix delta;                // of the whole weight
};

// Every kind of adapter on a linear layer [12, 4] and on a convolution [6, 4, 3, 3].
inline std::vector<Algebra> algebras() {
  const char *linear = "blocks.0.qkv", *conv = "res.1.conv", *skip = "res.1.skip";
  std::vector<Algebra> all;
  {
    const HostTensor down = wave({2, 4, 3, 3}, 1), up = wave({6, 2, 1, 1}, 2);
    all.push_back(
        {"convolution", conv, {{".lora_down.weight", down}, {".lora_up.weight", up}}, matrix(up) * matrix(down)});
  }
  {
    const HostTensor down = wave({2, 4, 1, 1}, 1), up = wave({6, 2, 1, 1}, 2);
    all.push_back(
        {"1x1 convolution", skip, {{".lora_down.weight", down}, {".lora_up.weight", up}}, matrix(up) * matrix(down)});
    const HostTensor flat_down = wave({2, 4}, 1), flat_up = wave({6, 2}, 2);
    all.push_back({"1x1 convolution as a matrix",
                   skip,
                   {{".lora_down.weight", flat_down}, {".lora_up.weight", flat_up}},
                   matrix(up) * matrix(down)});
  }
  {
    const HostTensor down = wave({2, 4, 1, 1}, 1), core = wave({3, 2, 3, 3}, 2), up = wave({6, 3, 1, 1}, 3);
    all.push_back({"Tucker",
                   conv,
                   {{".lora_down.weight", down},
                    {".lora_mid.weight", core},
                    {".lora_up.weight", up},
                    {".alpha", floats({}, {1})}},
                   0.5 * tucker(core, transposed(matrix(up)), matrix(down))});
  }
  {
    const HostTensor a1 = wave({12, 2}, 1), b1 = wave({2, 4}, 2), a2 = wave({12, 3}, 3), b2 = wave({3, 4}, 4);
    all.push_back(
        {"LoHa",
         linear,
         {{".hada_w1_a", a1}, {".hada_w1_b", b1}, {".hada_w2_a", a2}, {".hada_w2_b", b2}, {".alpha", floats({}, {3})}},
         1.5 * hadamard(matrix(a1) * matrix(b1), matrix(a2) * matrix(b2))});
  }
  {
    const HostTensor a1 = wave({6, 2}, 1), b1 = wave({2, 36}, 2), a2 = wave({6, 2}, 3), b2 = wave({2, 36}, 4);
    all.push_back({"LoHa on a convolution",
                   conv,
                   {{".hada_w1_a", a1}, {".hada_w1_b", b1}, {".hada_w2_a", a2}, {".hada_w2_b", b2}},
                   hadamard(matrix(a1) * matrix(b1), matrix(a2) * matrix(b2))});
  }
  {
    const HostTensor t1 = wave({2, 3, 3, 3}, 1), a1 = wave({2, 6}, 2), b1 = wave({3, 4}, 3);
    const HostTensor t2 = wave({3, 2, 3, 3}, 4), a2 = wave({3, 6}, 5), b2 = wave({2, 4}, 6);
    all.push_back({"LoHa with cores",
                   conv,
                   {{".hada_t1", t1},
                    {".hada_w1_a", a1},
                    {".hada_w1_b", b1},
                    {".hada_t2", t2},
                    {".hada_w2_a", a2},
                    {".hada_w2_b", b2},
                    {".alpha", floats({}, {6})}},
                   2.0 * hadamard(tucker(t1, matrix(a1), matrix(b1)), tucker(t2, matrix(a2), matrix(b2)))});
  }
  {
    const HostTensor w1 = wave({3, 2}, 1), w2 = wave({4, 2}, 2);
    all.push_back({"LoKr of whole factors, whose alpha means nothing",
                   linear,
                   {{".lokr_w1", w1}, {".lokr_w2", w2}, {".alpha", floats({}, {5})}},
                   kron(matrix(w1), matrix(w2))});
  }
  {
    const HostTensor w1 = wave({3, 2}, 1), a = wave({4, 2}, 2), b = wave({2, 2}, 3);
    all.push_back({"LoKr, second factor decomposed",
                   linear,
                   {{".lokr_w1", w1}, {".lokr_w2_a", a}, {".lokr_w2_b", b}, {".alpha", floats({}, {1})}},
                   0.5 * kron(matrix(w1), matrix(a) * matrix(b))});
  }
  {
    const HostTensor a = wave({3, 4}, 1), b = wave({4, 2}, 2), w2 = wave({4, 2}, 3);
    all.push_back({"LoKr, first factor decomposed",
                   linear,
                   {{".lokr_w1_a", a}, {".lokr_w1_b", b}, {".lokr_w2", w2}, {".alpha", floats({}, {1})}},
                   0.25 * kron(matrix(a) * matrix(b), matrix(w2))});
  }
  {
    const HostTensor a1 = wave({3, 4}, 1), b1 = wave({4, 2}, 2), a2 = wave({4, 2}, 3), b2 = wave({2, 2}, 4);
    all.push_back(
        {"LoKr, both decomposed: the second one's rank counts",
         linear,
         {{".lokr_w1_a", a1}, {".lokr_w1_b", b1}, {".lokr_w2_a", a2}, {".lokr_w2_b", b2}, {".alpha", floats({}, {1})}},
         0.5 * kron(matrix(a1) * matrix(b1), matrix(a2) * matrix(b2))});
  }
  {
    const HostTensor w1 = wave({3, 2}, 1), w2 = wave({2, 2, 3, 3}, 2);
    all.push_back({"LoKr on a convolution", conv, {{".lokr_w1", w1}, {".lokr_w2", w2}}, kron(matrix(w1), matrix(w2))});
  }
  {
    const HostTensor w1 = wave({3, 2}, 1), core = wave({2, 3, 3, 3}, 2), a = wave({2, 2}, 3), b = wave({3, 2}, 4);
    all.push_back(
        {"LoKr with a core",
         conv,
         {{".lokr_w1", w1}, {".lokr_t2", core}, {".lokr_w2_a", a}, {".lokr_w2_b", b}, {".alpha", floats({}, {6})}},
         2.0 * kron(matrix(w1), tucker(core, matrix(a), matrix(b)))});
  }
  {
    const HostTensor diff = wave({12, 4}, 1);
    all.push_back({"full", linear, {{".diff", diff}}, matrix(diff)});
  }
  return all;
}

}  // namespace lh::test
