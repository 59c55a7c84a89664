// A model at work: a plugin's architecture over an opened checkpoint. Any number can be open, of one plugin too; graphs
// may be built from several threads.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/tokenizer_files.h"
#include "graph/graph.h"
#include "io/checkpoint.h"
#include "plugin/plugin_model.h"
#include "plugin/recipe.h"

namespace lh {

class Model {
 public:
  // Opens the checkpoint with the plugin called `plugin`, or with the one that is surest of it. images: the keys of
  // further images that the run has, for models that can do without (keys_of_images).
  Model(const Registry& registry, const ModelConfig& config, const std::string& plugin,
        const std::set<std::string>& images = {});
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& id() const { return id_; }
  const std::string& plugin_version() const { return plugin_version_; }
  // As the plugin gives it, with the tokenizers that this run uses: at the user's length, without encoders that may be
  // and are missing.
  const Recipe& recipe() const { return recipe_; }
  const CheckpointSpec& spec() const { return spec_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // From here on weights are read with these LoRA files merged into them.
  void merge(const std::vector<LoraInput>& loras) { use(merge_of(loras)); }
  // The same in two steps, so that a model can go from one set to another.
  std::shared_ptr<const LoraMerge> merge_of(const std::vector<LoraInput>& loras) const {
    return checkpoint_->merge_of(loras);
  }
  void use(std::shared_ptr<const LoraMerge> merge) { checkpoint_->use(std::move(merge)); }
  // Where the files of one of its tokenizers may lie.
  TokenizerPlaces tokenizer_places(const TokenizerSpec& spec) const;
  bool has_role(const std::string& role) const;
  // How the weight of a linear layer is kept, after model.dtype, or model.text_encoder_dtype where a text encoder has
  // it; nothing: in the type of computation.
  std::optional<WeightForm> weight_form(const std::string& weight) const;
  bool is_adapted(const std::string& weight) const;   // of a layer that the model's LoRA goes on: those of the blocks
  lk_products products() const { return products_; }  // model.products, of these layers
  // The graph of a role at the given sizes; activations are stored as `compute`. lists: given among the sizes.
  Graph build(const std::string& role, const Sizes& sizes, DType compute, const SizeLists& lists = {}) const;
  // Several roles one after another in one graph: what an earlier one gives is what inputs of a later one are bound to.
  Graph build_chain(const std::vector<std::string>& roles, const Sizes& sizes, DType compute,
                    const SizeLists& lists = {}) const;

 private:
  void settle_rows(int64_t tokens);
  void settle_tokenizers(const ModelConfig& config);
  using Given = std::map<std::string, Value>;
  Given bound_inputs(Graph& graph, const Given& outputs) const;
  std::string id_;
  CheckpointSpec spec_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<PluginModel> plugin_;
  Recipe recipe_;
  std::string dtype_, text_encoder_dtype_;  // of `model:`
  lk_products products_ = LK_PRODUCTS_WIDE;
  std::filesystem::path plugin_file_;
  std::string plugin_version_;
  std::map<std::string, std::filesystem::path> files_;  // what the user gave, by key of `model:`
  LoraTargets lora_targets_;
};

}  // namespace lh
