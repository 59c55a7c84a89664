// Checkpoints for tests: a plugin's files in the layouts that people have them in, and plugins over names and shapes
// alone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plugin/model.h"
#include "support/io_files.h"

namespace lh::test {

using Shapes = std::map<std::string, Desc>;

// The plugins that were built.
const Registry& built_plugins();
CheckpointSpec spec_of(const std::string& plugin);

ModelConfig single(const std::filesystem::path& path);  // model.name_or_path alone

std::vector<Given> tensors_of(const std::filesystem::path& file);
HostTensor read(const Checkpoint& checkpoint, const std::string& name);  // as float32
HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t count);

// The key map backwards: what a diffusers folder holds for one native tensor of `all`.
std::vector<Given> in_diffusers(const ComponentSpec& component, const Given& given, const std::vector<Given>& all);
// The first half of the tensors in one shard, the rest in another, and the index.
void write_shards(const std::filesystem::path& folder, const std::string& base, const std::string& variant,
                  const std::vector<Given>& tensors);

using Change = std::function<HostTensor(const HostTensor&)>;
inline const Change as_is = [](const HostTensor& t) { return t; };
inline const Change as_half = [](const HostTensor& t) { return as_type(t, DType::f16); };

// A whole model as a diffusers directory: component -> native tensors. Components in `renamed` have other names there.
void write_directory(const std::filesystem::path& folder, const CheckpointSpec& spec,
                     const std::map<std::string, std::vector<Given>>& components,
                     const std::vector<std::string>& renamed, const std::string& variant, const Change& change);

// Same names; same numbers, after `change` of the original's. Shapes may differ in axes of length 1.
void expect_same(const Checkpoint& got, const Checkpoint& want, const Change& change = as_is);

// Key lists of published files (LORA_KEY_LISTS), where they are at hand.
std::filesystem::path key_lists();
Shapes key_list(const std::string& name);  // a denoiser's without the prefix of single files
// Every key of the folder's list gives tensors of the file's list, of as many elements, and none is left out.
void expect_maps(const ComponentSpec& component, const std::string& folder_list, const std::string& file_list);

void add_linear(Shapes& shapes, const std::string& name, int64_t out, int64_t in, bool bias = true);
void add_norm(Shapes& shapes, const std::string& name, int64_t width);  // weight and bias
// The text encoders of nn/clip.hpp and nn/t5.hpp under `prefix`.
void add_clip(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t words);
void add_t5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t blocks, int64_t words);
int64_t parameters_of(const Shapes& shapes);

// Values for them, by the law of synthetic weights.
std::vector<Given> filled(const Shapes& shapes);

// One output of a graph over the model's weights, for inputs that follow from their names.
HostTensor output_of(const Model& model, Graph graph, const std::string& output);

// A plugin over names and shapes, without any file.
class Described {
 public:
  Described(const std::string& plugin, const Shapes& shapes, const std::string& variant = "");
  Described(const std::string& plugin, const Shapes& shapes, const std::map<std::string, std::string>& settings);
  int32_t confidence() const { return probe(offered_, shapes_, nullptr).confidence; }
  std::string recipe_text() const { return model_.recipe(); }
  Recipe recipe() const;
  Graph denoiser(const Sizes& sizes, const std::vector<int64_t>& skip_layers = {}) const;
  Graph build(const std::string& role, const Sizes& sizes, const SizeLists& lists = {}) const;

 private:
  Shapes shapes_;
  Offered<lh_model> offered_;
  PluginModel model_;
};

}  // namespace lh::test
