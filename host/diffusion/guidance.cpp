// How outputs with and without a prompt, and with blocks left out, are combined.
#include "diffusion/guidance.h"

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
  guidance.skip_layers = skip_layers_of(config, recipe, guidance.classifier_free);
  return guidance;
}

bool active(const SkipLayerGuidance& guidance, int64_t step, int64_t steps) {
  const auto at = static_cast<double>(step), all = static_cast<double>(steps);
  return at > all * guidance.start && at < all * guidance.end;
}

HostTensor classifier_free(const HostTensor& with, const HostTensor& without, double scale) {
  HostTensor out(with.desc);
  const auto g = static_cast<float>(scale);
  const std::span<const float> c = with.as<float>(), u = without.as<float>();
  for (size_t i = 0; i < c.size(); ++i) out.as<float>()[i] = u[i] + g * (c[i] - u[i]);
  return out;
}

void add_skip_layer(HostTensor& out, const HostTensor& with, const HostTensor& skipped, double scale) {
  const auto g = static_cast<float>(scale);
  const std::span<const float> c = with.as<float>(), s = skipped.as<float>();
  for (size_t i = 0; i < c.size(); ++i) out.as<float>()[i] += g * (c[i] - s[i]);
}

}  // namespace lh
