// LoRA files that are part of the model: model.lora_path always, model.assistant_lora_path while training,
// model.inference_lora_path in samples. Weights are read with one set or the other merged into them; between training
// and samples those that differ are read again, so that both are exactly what their files say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/lora_merge.h"
#include "plugin/model.h"
#include "plugin/registry.h"
#include "run/weights.h"

namespace lh {

class ModelLoras {
 public:
  // From here on the model's weights are read as for training. Throws lh::Error for a file that is not there or does
  // not fit, and for one that only training or only samples have and that changes text encoders or the VAE.
  ModelLoras(const Registry& registry, const ModelConfig& config, Model& model);

  bool differ() const { return training_ != samples_; }
  // Reads into `weights`, which are those of `graph`, what samples or training have otherwise. No program may be
  // running.
  void use_for_samples(Device& device, Weights& weights, const Graph& graph) { use(samples_, device, weights, graph); }
  void use_for_training(Device& device, Weights& weights, const Graph& graph) {
    use(training_, device, weights, graph);
  }

 private:
  using Merge = std::shared_ptr<const LoraMerge>;
  void use(const Merge& merge, Device& device, Weights& weights, const Graph& graph);
  Model& model_;
  Merge training_, samples_;
};

// A file that a key of `model` names, or the folder that it was downloaded to.
LoraInput lora_of_key(const Registry& registry, const std::string& key, const std::filesystem::path& path);
// The files of a set as `Model::merge` takes them; those that are named by keys of `model`.
std::vector<LoraInput> sample_loras(const Registry& registry, const ModelConfig& config);

}  // namespace lh
