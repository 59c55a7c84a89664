// The other experts of a model (config/experts.h) in its samples: each denoises its own noise levels, with weights
// that take the places of the opened one's while it does. The graph is the same, so no memory is taken for them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/lora_merge.h"
#include "plugin/model.h"
#include "plugin/registry.h"
#include "run/weights.h"

namespace lh {

// Who denoises which noise levels: sigmas above `above`, up to those of the one before.
struct LevelShare {
  double above = 0;
  const Model* model = nullptr;
  std::string expert = {};
};

class OtherExperts {
 public:
  OtherExperts() = default;
  // Opens the others of `own`, where it has some and the files of all of them are known. loras: files of each expert
  // beside those of its key; merged into what is read of it. Throws lh::Error for a file that is not such an expert.
  OtherExperts(const Registry& registry, const ModelConfig& config, const Model& own,
               const std::set<std::string>& images, const std::map<std::string, std::vector<LoraInput>>& loras = {});

  // All shares from the noisiest, that of the opened model among them; empty: it denoises all levels.
  const std::vector<LevelShare>& shares() const { return shares_; }
  size_t own() const { return own_; }
  // Reads the weights of a share's expert into `weights`, which are those of `graph`, unless they are there. No program
  // may be running.
  void use(size_t share, Device& device, Weights& weights, const Graph& graph);
  std::string text() const;  // "levels above 0.875 by high_noise, the others by low_noise"; empty: one has them all

 private:
  std::vector<std::unique_ptr<Model>> opened_;
  std::vector<LevelShare> shares_;
  size_t own_ = 0, now_ = 0;
};

// The LoRA that its key names, if any.
std::vector<LoraInput> loras_of_expert(const Registry& registry, const ModelConfig& config, const Expert& expert);
// All files that samples have merged into their weights: of the model and of each of its experts.
std::vector<LoraInput> loras_in_samples(const Registry& registry, const ModelConfig& config, const Model& model);
// Why an expert denoises all levels, and what to give; empty: the model is none.
std::string why_alone(const Model& model);
// The expert that an opened model is: that which its recipe does not name. nullptr: the model is no expert.
const Expert* expert_of(const Model& model);

}  // namespace lh
