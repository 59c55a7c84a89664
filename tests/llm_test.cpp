// The language model block of the SDK (nn/llm.hpp) against the same in float64, written out: what golden cases of Qwen
// do not reach. tests/plugins/llm.cpp has the same facts.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "plugin/model.h"
#include "run/program.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::test::llm_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t width = 12, small_head = 8, wide_head = 16, queries = 4, small_keys = 2, inner = 20, words = 30,
                  layers = 3, length = 11;
const std::vector<int64_t> lengths{11, 9};  // real tokens of each sample; every pad still has one in its window

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// One sample through the model, in float64.
class Reference {
 public:
  Reference(const std::map<std::string, HostTensor>& weights, const std::string& variant)
      : weights_(weights),
        gemma_(variant.starts_with("gemma")),
        gemma4_(variant == "gemma4"),
        yarn_(variant == "yarn") {}

  std::vector<Rows> states(const std::vector<int32_t>& ids, int64_t real) {
    Rows x;
    const HostTensor& table = weights_.at("model.embed_tokens.weight");
    for (const int32_t id : ids) {
      Row row;
      for (int64_t i = 0; i < width; ++i)
        row.push_back((gemma_ ? 3.5 : 1) * double{table.as<float>()[static_cast<size_t>(id * width + i)]});
      x.push_back(row);
    }
    std::vector<Rows> all{x};
    for (int64_t i = 0; i < layers; ++i) all.push_back(x = layer(i, x, real));
    all.push_back(norm(x, "model.norm"));
    return all;
  }

 private:
  Rows layer(int64_t index, Rows x, int64_t real) {
    const std::string name = fmt::format("model.layers.{}.", index);
    Rows y = attention(norm(x, name + "input_layernorm"), name + "self_attn.", gemma_ && index != 1, real);
    if (gemma_) y = norm(y, name + "post_attention_layernorm");
    x = sum(x, y);
    y = norm(x, name + (gemma_ ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
    Rows gate = linear(y, name + "mlp.gate_proj"), up = linear(y, name + "mlp.up_proj");
    for (size_t t = 0; t < gate.size(); ++t)
      for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = activation(gate[t][i]) * up[t][i];
    y = linear(gate, name + "mlp.down_proj");
    if (gemma_) y = norm(y, name + "post_feedforward_layernorm");
    x = sum(x, y);
    if (gemma4_)
      for (Row& row : x)
        for (double& value : row) value *= double{weights_.at(name + "layer_scalar").as<float>()[0]};
    return x;
  }

  double activation(double x) const {
    if (!gemma_) return x / (1 + std::exp(-x));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  Rows attention(const Rows& x, const std::string& name, bool windowed, int64_t real) {
    const bool wide = gemma4_ && !windowed;  // heads of their own, one of keys, which are the values
    const int64_t head = wide ? wide_head : small_head, keys = wide ? 1 : small_keys;
    const Rows v = values(linear(x, name + (wide ? "k_proj" : "v_proj")), head);
    const Rows q = turned(linear(x, name + "q_proj"), name + "q_norm", windowed, head);
    const Rows k = turned(linear(x, name + "k_proj"), name + "k_norm", windowed, head);
    const double scale = gemma4_ ? 0.5 : gemma_ ? 0.2 : 1 / std::sqrt(static_cast<double>(head));
    Rows y(x.size(), Row(static_cast<size_t>(queries * head), 0.0));
    for (int64_t i = 0; i < length; ++i)
      for (int64_t h = 0; h < queries; ++h) {
        const int64_t group = h / (queries / keys);
        Row p;
        for (int64_t j = 0; j < length; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < head; ++d) dot += at(q, i, h * head + d) * at(k, j, group * head + d);
          const bool seen = j <= i && j < real && !(windowed && i - j >= 3);
          const double score = gemma_ && !gemma4_ ? 1.5 * std::tanh(scale * dot / 1.5) : scale * dot;
          p.push_back(seen ? std::exp(score) : 0);
        }
        double total = 0;
        for (const double value : p) total += value;
        for (int64_t j = 0; j < length; ++j)
          for (int64_t d = 0; d < head; ++d)
            y[static_cast<size_t>(i)][static_cast<size_t>(h * head + d)] +=
                p[static_cast<size_t>(j)] / total * at(v, j, group * head + d);
      }
    return linear(y, name + "o_proj");
  }

  // Norms of heads, where there are any, and rotation by position.
  Rows turned(Rows x, const std::string& norm_name, bool windowed, int64_t head) {
    const auto half = static_cast<size_t>(head / 2);
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t first = 0; first < x[t].size(); first += 2 * half) {
        Rows one{Row(x[t].begin() + static_cast<int64_t>(first), x[t].begin() + static_cast<int64_t>(first) + head)};
        if (weights_.contains(norm_name + ".weight")) one = norm(one, norm_name);
        for (size_t k = 0; k < half; ++k) {
          const double angle = static_cast<double>(t) * frequency(static_cast<double>(k), windowed);
          const double a = one[0][k], b = one[0][k + half];
          x[t][first + k] = a * std::cos(angle) - b * std::sin(angle);
          x[t][first + k + half] = a * std::sin(angle) + b * std::cos(angle);
        }
      }
    return x;
  }

  // Those of Gemma 4 have a norm without weights.
  Rows values(Rows x, int64_t head) const {
    if (!gemma4_) return x;
    for (Row& row : x)
      for (auto first = row.begin(); first != row.end(); first += head) {
        double square = 0;
        for (auto at = first; at != first + head; ++at) square += *at * *at;
        const double r = 1 / std::sqrt(square / static_cast<double>(head) + 1e-6);
        for (auto at = first; at != first + head; ++at) *at *= r;
      }
    return x;
  }

  double frequency(double k, bool windowed) const {
    constexpr double head = small_head;
    // A quarter of the frequencies of heads of 16.
    if (gemma4_ && !windowed) return k < 2 ? std::pow(1e5, -2 * k / wide_head) : 0;
    if (gemma_) return windowed ? std::pow(1e3, -2 * k / head) : std::pow(1e5, -2 * k / head) / 4;
    const double f = std::pow(1e4, -2 * k / head), wave = 2 * std::numbers::pi / f;
    // YaRN: a wave of 64 would be at place 1.01, one of 64 / 4 at 0.41. From 2 on they are stretched eight times.
    if (yarn_) return std::vector<double>{f, f * (1 + 1 / 8.0) / 2, f / 8, f / 8}[static_cast<size_t>(k)];
    // Llama 3: waves longer than 64 are stretched eight times, those shorter than 64 / 4 not at all.
    if (wave < 64.0 / 4) return f;
    if (wave > 64) return f / 8;
    const double smooth = (64 / wave - 1) / (4 - 1);
    return (1 - smooth) * f / 8 + smooth * f;
  }

  Rows norm(const Rows& x, const std::string& name) {
    const std::span<const float> w = weights_.at(name + ".weight").as<float>();
    Rows y = x;
    for (Row& row : y) {
      double square = 0;
      for (const double value : row) square += value * value;
      const double r = 1 / std::sqrt(square / static_cast<double>(row.size()) + (gemma_ ? 1e-6 : 1e-5));
      for (size_t i = 0; i < row.size(); ++i) row[i] *= r * ((gemma_ && !gemma4_ ? 1 : 0) + double{w[i]});
    }
    return y;
  }

  Rows linear(const Rows& x, const std::string& name) {
    const HostTensor& w = weights_.at(name + ".weight");
    const auto out = static_cast<size_t>(w.desc.shape[0]), in = static_cast<size_t>(w.desc.shape[1]);
    const auto bias = weights_.find(name + ".bias");
    Rows y(x.size(), Row(out, 0.0));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t o = 0; o < out; ++o) {
        if (bias != weights_.end()) y[t][o] = bias->second.as<float>()[o];
        for (size_t i = 0; i < in; ++i) y[t][o] += x[t][i] * double{w.as<float>()[o * in + i]};
      }
    return y;
  }

  static double at(const Rows& x, int64_t row, int64_t column) {
    return x[static_cast<size_t>(row)][static_cast<size_t>(column)];
  }
  static Rows sum(Rows x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    return x;
  }

  const std::map<std::string, HostTensor>& weights_;
  bool gemma_, gemma4_, yarn_;
};

std::map<std::string, HostTensor> weights_of(const std::string& variant) {
  const bool gemma = variant.starts_with("gemma"), gemma4 = variant == "gemma4";
  std::map<std::string, HostTensor> all;
  int64_t seed = 1;
  const auto put = [&](const std::string& name, Shape shape, float scale, float offset) {
    HostTensor tensor = ramp(std::move(shape), 31 * seed++);
    for (float& value : tensor.as<float>()) value = offset + scale * value;
    all[name] = tensor;
  };
  const auto norm = [&](const std::string& name, int64_t size) {
    put(name + ".weight", {size}, 0.25f, gemma && !gemma4 ? 0.0f : 1.0f);
  };
  put("model.embed_tokens.weight", {words, width}, 1, 0);
  norm("model.norm", width);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("model.layers.{}.", i);
    const bool wide = gemma4 && i == 1;
    const int64_t head = wide ? wide_head : small_head, keys = wide ? 1 : small_keys;
    for (const auto& [part, out, in] :
         std::vector<std::tuple<std::string, int64_t, int64_t>>{{"self_attn.q_proj", queries * head, width},
                                                                {"self_attn.k_proj", keys * head, width},
                                                                {"self_attn.v_proj", keys * head, width},
                                                                {"self_attn.o_proj", width, queries * head},
                                                                {"mlp.gate_proj", inner, width},
                                                                {"mlp.up_proj", inner, width},
                                                                {"mlp.down_proj", width, inner}}) {
      if (wide && part == "self_attn.v_proj") continue;
      put(name + part + ".weight", {out, in}, 0.5f, 0);
      if (!gemma && in == width && part.starts_with("self_attn")) put(name + part + ".bias", {out}, 0.5f, 0);
    }
    norm(name + "input_layernorm", width);
    norm(name + "post_attention_layernorm", width);
    if (!gemma) continue;
    norm(name + "pre_feedforward_layernorm", width);
    norm(name + "post_feedforward_layernorm", width);
    norm(name + "self_attn.q_norm", head);
    norm(name + "self_attn.k_norm", head);
    if (gemma4) put(name + "layer_scalar", {1}, 0.25f, 1.0f);
  }
  return all;
}

class Llm : public testing::TestWithParam<const char*> {};  // a variant of the plugin

TEST_P(Llm, StatesAreThoseOfTheReference) {
  const std::string variant = GetParam();
  const TempDir dir;
  const auto given = weights_of(variant);
  std::vector<Given> file;
  for (const auto& [name, tensor] : given) file.push_back({name, tensor});
  write_file(dir / "llm.safetensors", file);
  static const Registry registry({fs::path(binary_dir()) / "lib" / "lora-host-llm"}, {});
  ModelConfig config;
  config.given["llm_path"] = {dir / "llm.safetensors"};
  config.given["variant"] = {variant};
  const Model model(registry, config, "test_llm");

  const auto batch = static_cast<int64_t>(lengths.size());
  std::vector<int32_t> ids, mask;
  for (int64_t i = 0; i < batch * length; ++i) {
    ids.push_back(static_cast<int32_t>((7 * i + 3) % words));
    mask.push_back(i % length < lengths[static_cast<size_t>(i / length)]);
  }
  Graph graph = model.build("conditioner", {{"batch", batch}, {"llm.length", length}}, DType::f32);
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "llm");
  program->set_input("llm.input_ids", HostTensor::from_ints({batch, length}, ids));
  program->set_input("llm.attention_mask", HostTensor::from_ints({batch, length}, mask));
  program->run();

  std::vector<HostTensor> want(layers + 2, HostTensor(Desc{DType::f32, {batch, length, width}}));
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<int32_t> own(ids.begin() + b * length, ids.begin() + (b + 1) * length);
    const std::vector<Rows> states = Reference(given, variant).states(own, lengths[static_cast<size_t>(b)]);
    for (size_t k = 0; k < states.size(); ++k)
      for (size_t t = 0; t < states[k].size(); ++t)
        for (size_t i = 0; i < states[k][t].size(); ++i)
          want[k].as<float>()[(static_cast<size_t>(b) * length + t) * width + i] = static_cast<float>(states[k][t][i]);
  }
  for (size_t k = 0; k < want.size(); ++k) {
    const std::string name = k + 1 < want.size() ? fmt::format("states.{}", k) : "last";
    EXPECT_LT(relative_error(program->output(name), want[k]), 3e-6) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Llm, testing::Values("llama", "gemma", "gemma4", "yarn"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lh::test::llm_test
