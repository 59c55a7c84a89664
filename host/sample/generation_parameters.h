// How an image was made, as the text that AUTOMATIC1111's interface writes into its pictures and that viewers, Civitai
// and other interfaces read:
//   the prompt <lora:name:strength>
//   Negative prompt: words
//   Steps: 20, Sampler: Euler, CFG scale: 4, Seed: 42, Size: 512x512, Model: name, Lora hashes: "name: 0123456789ab"
// Equal runs give equal texts: no times, and no folders.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "diffusion/sampler_choice.h"
#include "io/lora_merge.h"
#include "sample/sampling.h"

namespace lh {

// What all images of a run or a command have in common.
class GenerationParameters {
 public:
  // loras: that are merged into the model; they are read for their hashes.
  GenerationParameters(const ModelConfig& model, const SamplerChoice& sampler, const std::vector<LoraInput>& loras);
  using Fields = std::vector<std::pair<std::string, std::string>>;
  // more: what else there is to say, behind the rest.
  std::string text(const SampleRequest& request, const Recipe& recipe, const Fields& more = {}) const;

 private:
  std::string tags_, model_, hashes_, sampler_, schedule_;
};

}  // namespace lh
