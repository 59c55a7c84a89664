// A model's recipe: what differs between model families, as data. The YAML is documented in docs/plugin-guide.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace lh {

struct LatentSpec {
  int64_t channels = 0;
  int64_t downscale = 8;        // pixels of one latent place
  int64_t multiple = 1;         // latent sides are multiples of it
  double scale = 1, shift = 0;  // model space = (z - shift) * scale
  int64_t pixel_step() const { return downscale * multiple; }
};

struct TokenizerSpec {
  std::string kind;  // "clip" or "t5"
  int64_t length = 0;
  int32_t pad = 0;
  int64_t max_length = 0;  // model.max_sequence_length may set `length` up to this; 0 = it may not
  bool optional = false;   // the model also works without this encoder
};

// mu grows linearly with the number of image tokens; sigma' = e^mu / (e^mu + 1/sigma - 1).
struct ResolutionShift {
  double base_tokens = 256, base = 0.5, max_tokens = 4096, max = 1.15;
  double mu(int64_t tokens) const;
};

struct TimestepSpec {
  std::string type = "sigmoid";
  double shift = 1;
  std::optional<ResolutionShift> resolution_shift;
};

struct SamplingSpec {
  std::string sampler;
  int64_t steps = 20;
  double guidance = 1;
  bool dynamic = false;  // the schedule is shifted by image size
  double shift = 1;
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
  std::string family, variant, objective;
  bool guidance = false;  // the model takes a distilled guidance strength
  LatentSpec latents;
  std::map<std::string, TokenizerSpec> tokenizers;  // by encoder
  TimestepSpec timestep;
  SamplingSpec sampling;
  std::vector<std::string> lora_targets;                              // patterns of LoraTargets
  std::vector<std::string> lora_conv_targets;                         // likewise: blocks that network.conv adds
  std::map<std::string, std::vector<std::string>> lora_text_targets;  // by encoder
  std::map<std::string, std::string> metadata;                        // for LoRA files

  static Recipe parse(const std::string& yaml, const std::string& plugin);
};

}  // namespace lh
