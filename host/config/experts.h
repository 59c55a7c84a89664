// The experts of a model: files of one architecture that share the noise levels. The plugin's checkpoint YAML lists
// them (docs/plugin-guide.md), its recipes say which levels are whose.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace lh {

struct Expert {
  std::string name;    // its role in the recipes of the others, and the end of its LoRA's name: "high_noise"
  std::string word;    // of the setting: "wan2.2-high-noise"
  std::string folder;  // of a diffusers directory; empty: where such a model has its denoiser anyway
  // Keys of `model:` for its weights, and for a LoRA that it has in samples while another is trained.
  std::string path_key() const { return name + "_path"; }
  std::string lora_key() const { return name + "_lora_path"; }
  std::string suffix() const { return "_" + name; }
};

struct Experts {
  std::string setting;       // of `model:` that says which one it is: "variant"
  std::string together;      // its word for all of them
  std::vector<Expert> each;  // from the noisiest; empty: the model has none

  const Expert* find(std::string_view name) const;  // nullptr: there is none of this name
  bool wanted_together(const ModelConfig& config) const;
  // Which one the model is opened as: of all together the first. nullptr: the configuration does not say.
  const Expert* said(const ModelConfig& config) const;
  // Where the weights of one are; empty: the configuration does not tell.
  std::filesystem::path weights_of(const Expert& expert, const ModelConfig& config) const;
  // The configuration of one alone, which names the files of the others as far as they are known. Throws
  // lh::Error(Code::config) where its own are not.
  ModelConfig alone(const Expert& expert, const ModelConfig& config) const;
};

}  // namespace lh
