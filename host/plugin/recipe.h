// A model's recipe: what differs between model families, as data. The YAML is documented in docs/plugin-guide.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_spec.h"

namespace lh {

// What the model says about x_t = alpha x0 + sigma noise.
enum class Objective {
  flow,          // noise - x0, with alpha = 1 - sigma and the time sigma
  epsilon,       // noise, on a schedule of discrete timesteps
  v_prediction,  // alpha noise - sigma x0, on such a schedule
};
std::string_view objective_name(Objective objective);

struct LatentSpec {
  int64_t channels = 0;
  int64_t downscale = 8;        // pixels of one latent place
  int64_t multiple = 1;         // latent sides are multiples of it
  double scale = 1, shift = 0;  // model space = (z - shift) * scale
  int64_t pixel_step() const { return downscale * multiple; }
};

// mu grows linearly with the number of image tokens; sigma' = e^mu / (e^mu + 1/sigma - 1).
struct ResolutionShift {
  double base_tokens = 256, base = 0.5, max_tokens = 4096, max = 1.15;
  double mu(int64_t tokens) const;
};

// The noise that epsilon and v_prediction models are trained on: see train/noise_schedule.h.
struct NoiseScheduleSpec {
  std::string kind = "scaled_linear";  // or "linear"
  double beta_start = 0.00085, beta_end = 0.012;
  int64_t steps = 1000;
  bool zero_terminal_snr = false;
};

struct TimestepSpec {
  std::string type = "sigmoid";
  double shift = 1;
  std::string weighting = "none";
  std::optional<ResolutionShift> resolution_shift;
};

// Where the noise levels of a sampling run lie: see sample/schedule.h.
struct ScheduleSpec {
  enum class Spacing { leading, trailing };
  // flow
  bool dynamic = false;  // shifted by image size
  double shift = 1;
  bool shift_twice = false;
  // epsilon and v_prediction
  Spacing spacing = Spacing::leading;
  int64_t offset = 0;             // added to the timesteps of leading spacing
  bool set_alpha_to_one = false;  // ddim ends without noise, not at that of the first training timestep
};

// Guidance away from the model with some blocks left out, while start < step / steps < end.
struct SkipLayerGuidance {
  std::vector<int64_t> layers;
  double scale = 0, start = 0.01, end = 0.2;
};

struct SamplingSpec {
  std::string sampler;
  int64_t steps = 20;
  double guidance = 1;
  ScheduleSpec schedule;
  std::optional<SkipLayerGuidance> skip_layer_guidance;
};

// The modules that a recipe's lora.targets name: regular expressions over whole names.
class LoraTargets {
 public:
  LoraTargets() = default;
  explicit LoraTargets(const std::vector<std::string>& patterns) : patterns_(patterns.begin(), patterns.end()) {}
  bool contain(const std::string& module) const;

 private:
  std::vector<std::regex> patterns_;
};

struct Recipe {
  std::string family, variant;
  Objective objective = Objective::flow;
  bool guidance = false;  // the model takes a distilled guidance strength
  LatentSpec latents;
  std::map<std::string, TokenizerSpec> tokenizers;  // by encoder
  NoiseScheduleSpec noise_schedule;
  TimestepSpec timestep;
  SamplingSpec sampling;
  std::vector<std::string> lora_targets, lora_conv_targets;           // patterns of LoraTargets
  std::map<std::string, std::vector<std::string>> lora_text_targets;  // by encoder
  std::vector<std::string> lora_networks{"lora"};                     // adapter types that the targets take
  std::map<std::string, std::string> metadata;                        // for LoRA files

  // Throws lh::Error(Code::plugin) naming plugin and line: unknown and missing fields, values out of range, and what
  // does not fit the objective.
  static Recipe parse(const std::string& yaml, const std::string& plugin);
};

}  // namespace lh
