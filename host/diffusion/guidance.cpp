// How outputs with and without a prompt, and with blocks left out, are combined.
#include "diffusion/guidance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace lh {
namespace {

// The recipe's skip-layer guidance under the user's settings; nothing where it has no effect.
std::optional<SkipLayerGuidance> skip_layers_of(const SampleConfig& config, const Recipe& recipe,
                                                bool classifier_free) {
  std::optional<SkipLayerGuidance> skip = recipe.sampling.skip_layer_guidance;
  const bool asked = config.skip_layer_guidance_scale.value_or(0) > 0;
  if (!skip) {
    if (asked || !config.skip_guidance_layers.empty())
      fail(Code::config, "sample.{}: model family '{}' has no skip-layer guidance; remove it",
           asked ? "skip_layer_guidance_scale" : "skip_guidance_layers", recipe.family);
    return {};
  }
  if (!config.skip_guidance_layers.empty()) skip->layers = config.skip_guidance_layers;
  skip->scale = config.skip_layer_guidance_scale.value_or(skip->scale);
  skip->start = config.skip_layer_guidance_start.value_or(skip->start);
  skip->end = config.skip_layer_guidance_stop.value_or(skip->end);
  if (skip->start > skip->end)
    fail(Code::config, "sample.skip_layer_guidance_start: {} is behind sample.skip_layer_guidance_stop: {}",
         skip->start, skip->end);
  if (asked && !classifier_free)
    fail(Code::config,
         "sample.skip_layer_guidance_scale goes with classifier-free guidance, which sample.guidance_scale: 1 switches "
         "off; raise that, or remove this");
  if (!classifier_free || skip->scale == 0) return {};
  return skip;
}

}  // namespace

Guidance guidance_of(const SampleConfig& config, const Recipe& recipe) {
  Guidance guidance;
  guidance.scale = config.guidance_scale.value_or(recipe.sampling.guidance);
  guidance.classifier_free = !recipe.guided() && guidance.scale != 1;
  guidance.batched = guidance.classifier_free && config.batch_cfg;
  guidance.by_patches = config.do_cfg_norm;
  guidance.limit = config.renorm_cfg.value_or(recipe.sampling.renorm_cfg);
  guidance.rescale = config.guidance_rescale;
  guidance.until = config.cfg_trunc_ratio.value_or(recipe.sampling.cfg_trunc_ratio);
  guidance.skip_layers = skip_layers_of(config, recipe, guidance.classifier_free);
  return guidance;
}

bool active(const SkipLayerGuidance& guidance, int64_t step, int64_t steps) {
  const auto at = static_cast<double>(step), all = static_cast<double>(steps);
  return at > all * guidance.start && at < all * guidance.end;
}

double noise_gone(const Recipe& recipe, double sigma, double time) {
  if (recipe.objective == Objective::flow) return 1 - sigma;
  return 1 - (time + 1) / static_cast<double>(recipe.noise_schedule.steps);
}

HostTensor classifier_free(const HostTensor& with, const HostTensor& without, double scale) {
  HostTensor out(with.desc);
  const auto g = static_cast<float>(scale);
  const std::span<const float> c = with.as<float>(), u = without.as<float>();
  for (size_t i = 0; i < c.size(); ++i) out.as<float>()[i] = u[i] + g * (c[i] - u[i]);
  return out;
}

namespace {

// Sums over values of a tensor, for its norm and its standard deviation.
struct Sums {
  double of = 0, squares = 0;
  int64_t count = 0;
  void add(double value) {
    of += value;
    squares += value * value;
    ++count;
  }
  double norm() const { return std::sqrt(squares); }
  double deviation() const {
    const double mean = of / static_cast<double>(count);
    return std::sqrt(std::max(0.0, squares / static_cast<double>(count) - mean * mean));
  }
};

Sums sums_of(const HostTensor& tensor) {
  Sums sums;
  for (const float value : tensor.as<float>()) sums.add(value);
  return sums;
}

void scale(HostTensor& out, double by) {
  for (float& value : out.as<float>()) value = static_cast<float>(value * by);
}

void patches_to_norm(HostTensor& out, const HostTensor& with, int64_t patch) {
  const Shape& shape = out.desc.shape;
  const int64_t channels = shape[shape.rank() - 1], width = shape[shape.rank() - 2], height = shape[shape.rank() - 3];
  const int64_t images = shape.numel() / (height * width * channels), across = width / patch;
  const auto patches = static_cast<size_t>(images * (height / patch) * across);
  std::vector<Sums> before(patches), after(patches);
  const auto each = [&](const auto& visit) {
    for (int64_t at = 0; at < shape.numel(); ++at) {
      const int64_t place = at / channels, row = place / width;
      const int64_t of = (row / height * (height / patch) + row % height / patch) * across + place % width / patch;
      visit(static_cast<size_t>(at), static_cast<size_t>(of));
    }
  };
  const std::span<const float> c = with.as<float>();
  const std::span<float> g = out.as<float>();
  each([&](size_t at, size_t of) {
    before[of].add(c[at]);
    after[of].add(g[at]);
  });
  each([&](size_t at, size_t of) {
    if (after[of].squares > 0) g[at] = static_cast<float>(g[at] * (before[of].norm() / after[of].norm()));
  });
}

}  // namespace

void take_back_norm(HostTensor& out, const HostTensor& with, const Guidance& guidance, int64_t patch) {
  if (guidance.by_patches) patches_to_norm(out, with, patch);
  if (guidance.limit > 0) {
    const double most = guidance.limit * sums_of(with).norm(), norm = sums_of(out).norm();
    if (norm > most) scale(out, most / norm);
  }
  if (guidance.rescale > 0) {
    const double before = sums_of(with).deviation(), after = sums_of(out).deviation();
    if (after > 0) scale(out, guidance.rescale * before / after + 1 - guidance.rescale);
  }
}

void add_skip_layer(HostTensor& out, const HostTensor& with, const HostTensor& skipped, double scale) {
  const auto g = static_cast<float>(scale);
  const std::span<const float> c = with.as<float>(), s = skipped.as<float>();
  for (size_t i = 0; i < c.size(); ++i) out.as<float>()[i] += g * (c[i] - s[i]);
}

}  // namespace lh
