// What a UNet of discrete noise levels was trained to say, which its tensors do not tell: the noise, the velocity, or
// the velocity on a schedule that ends in pure noise.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

enum class Prediction { epsilon, v_pred, v_pred_ztsnr };

inline constexpr std::array<const char*, 3> prediction_names = {"epsilon", "v_pred", "v_pred_ztsnr"};
inline const char* name_of(Prediction p) { return prediction_names[static_cast<size_t>(p)]; }

// By empty tensors of the file ("v_pred", "ztsnr"), which no setting can be against.
inline std::optional<Prediction> marked_prediction(const Weights& weights) {
  if (!weights.has("v_pred")) return std::nullopt;
  return weights.has("ztsnr") ? Prediction::v_pred_ztsnr : Prediction::v_pred;
}

// By what stands beside the weights: the scheduler of a diffusers directory, or metadata as training programs write
// them.
inline std::optional<Prediction> described_prediction(const Weights& weights) {
  const std::string scheduler = weights.document("", "scheduler/scheduler_config.json").value_or("");
  const auto member = [&](const std::string& key) {  // its text up to the next one
    const size_t at = scheduler.find('"' + key + '"');
    return at == std::string::npos ? "" : scheduler.substr(at, scheduler.find_first_of(",}", at) - at);
  };
  if (member("prediction_type").find("\"v_prediction\"") != std::string::npos)
    return member("rescale_betas_zero_snr").find("true") != std::string::npos ? Prediction::v_pred_ztsnr
                                                                              : Prediction::v_pred;
  if (!member("prediction_type").empty()) return Prediction::epsilon;
  const std::string type = weights.metadata("denoiser", "modelspec.prediction_type").value_or("");
  if (type == "v") return Prediction::v_pred;
  if (type == "epsilon") return Prediction::epsilon;
  return std::nullopt;
}

// The user's `model.variant`, unless markers are against it; or what the files say; nothing where none of them does.
inline std::optional<Prediction> told_prediction(const Weights& weights) {
  const std::optional<Prediction> marked = marked_prediction(weights);
  const std::optional<std::string> wanted = weights.setting("variant");
  if (!wanted) return marked ? marked : described_prediction(weights);
  Prediction asked = Prediction::epsilon;
  for (Prediction p : {Prediction::v_pred, Prediction::v_pred_ztsnr})
    if (*wanted == name_of(p)) asked = p;
  const bool ztsnr = marked == Prediction::v_pred_ztsnr;
  if (marked && asked != *marked && (ztsnr || asked == Prediction::epsilon))
    throw Failure(LH_E_MODEL, "variant is " + *wanted + ", but the checkpoint has the tensor " +
                                  (ztsnr ? "ztsnr beside v_pred" : "v_pred") + ": it is a " + name_of(*marked) +
                                  " model. Leave model.variant out");
  return asked;
}

}  // namespace lora_host::nn
