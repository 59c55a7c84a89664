// A checkpoint as its plugin sees it: canonical names and shapes, whatever files and spellings it is stored in.
//
// The plugin's `checkpoint` YAML (sdk/include/lora_host/model.h, docs/plugin-guide.md) lists components, for each the
// config key of its file, key prefixes, a marker key, ignored keys, the diffusers folder and key map.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model_keys.h"
#include "core/tensor.h"
#include "io/documents.h"
#include "io/lora_spec.h"
#include "io/safetensors.h"

namespace lh {

// How a canonical tensor is made of stored ones.
enum class Assemble { copy, concat_rows, swap_halves, transpose };

// On both sides "{i}" (any letter) stands for any number and "{*}" for any text. The first rule that fits a key wins,
// together with those for the other parts of its rows; those with `beside` come before the others.
struct KeyRule {
  std::string native;                  // module ("double_blocks.{i}.img_attn.qkv") or, when exact, a whole key
  std::vector<std::string> diffusers;  // one, or several that concat to the native rows
  Assemble assemble = Assemble::copy;
  bool exact = false;     // keys as they are; otherwise applied to .weight and .bias
  bool conv1x1 = false;   // a native 1x1 convolution stored as a matrix: [O, I] -> [O, I, 1, 1]
  int64_t when_rows = 0;  // not 0: only where the module's weight has this many times as many rows as columns
  std::string beside;     // not empty: only among stored keys of which this is one
  // The native rows are part number `part` of `parts` equal ones of the source: one of several rules with that source.
  int64_t part = 0, parts = 1;
};

struct ComponentSpec {
  std::string name;                            // "denoiser", "vae", ...
  std::string config_key = "name_or_path";     // or "vae_path", ...
  std::vector<std::string> prefixes;           // in a single file; tried in order, "" last
  std::string marker;                          // canonical key that proves the component is there
  bool optional = false;                       // some of the plugin's models, or of their runs, work without
  std::vector<std::string> ignore;             // glob patterns of keys to drop
  std::map<std::string, std::string> aliases;  // canonical key -> key to use when it is missing; patterns
  std::vector<std::string> also;               // keys of a single file that belong to it without any prefix
  std::string folder;                          // in a diffusers directory
  std::vector<KeyRule> diffusers;
  LoraNames lora;
};

struct CheckpointSpec {
  std::vector<ComponentSpec> components;
  std::vector<ModelKey> keys;            // of `model:`: files of components, other files, settings
  ArchNames arch;                        // names of ai-toolkit's for the models
  ModelKwargs model_kwargs;              // and keys of its own of such a model
  Experts experts;                       // that share the noise levels, each in a file of its own
  std::optional<MusubiModel> musubi;     // arguments of musubi-tuner's for the model
  std::optional<KohyaSsModel> kohya_ss;  // fields of the interface kohya_ss for the model
  std::vector<LoraLoader> lora_loaders;  // programs, and what they load
  static CheckpointSpec parse(const std::string& yaml, const std::string& plugin);
  const ComponentSpec* component(const std::string& name) const;
};

struct LoraInput;
class LoraMerge;

class Checkpoint {
 public:
  // paths: config key -> file or directory. Components without a file of their own are looked for in name_or_path's.
  // Only `name_or_path` must be there. Missing components are simply absent (has()).
  Checkpoint(const CheckpointSpec& spec, const std::map<std::string, std::filesystem::path>& paths);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  // LoRA files that weights can be read with; null for none.
  std::shared_ptr<const LoraMerge> merge_of(const std::vector<LoraInput>& loras) const;
  // From here on weights are read with these merged into them.
  void use(std::shared_ptr<const LoraMerge> merge);

  bool has(const std::string& component) const;
  // Canonical name -> stored desc (fp8 keeps its type): plain key for the denoiser, "<component>:<key>" for others.
  const std::map<std::string, Desc>& weights() const;
  // Reads a weight, converted to `dtype` (scaled fp8 is multiplied out). channels_last: [O,I,K...] -> [O,K...,I].
  void read(const std::string& name, DType dtype, bool channels_last, std::span<std::byte> out) const;
  // What is wrong with the first of these weights that holds a NaN or an infinity; empty: none does.
  std::string damage_in(const std::vector<std::string>& names) const;
  HostTensor read_f32(const std::string& name) const;  // in the order of files
  // The type in which a weight can be read without loss: that in which all of it is stored, if nothing multiplies or
  // changes it; otherwise float32.
  DType exact_dtype(const std::string& name) const;
  // How the file spells the type in which a weight, or the first part of it, is stored: "BF16", "Q4_K".
  std::string_view stored_type(const std::string& name) const;
  // The fp8 form in which a weight is stored; nothing when its values are stored otherwise, or changed by a LoRA: a sum
  // is kept wide unless the user asks for fp8, because rounding it to codes would drop most of a small change.
  std::optional<WeightForm> stored_fp8(const std::string& name) const;
  // Reads a weight as codes of a quantised type and the tensor of factors that multiply them (WeightForm::scale): in
  // fp8 as it is stored (stored_fp8), or else rounded, with the changes of a LoRA in it (io/quantise.h).
  void read_codes(const std::string& name, DType dtype, std::span<std::byte> codes, std::span<std::byte> scale) const;
  // Texts and metadata beside the weights.
  const Documents& documents() const;
  // For each component: fingerprint of its files and of what is merged into it.
  std::string fingerprint(const std::string& component) const;
  std::filesystem::path file_of(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Just the names and shapes of a file or diffusers directory, to see which plugin it belongs to: what a plugin's probe
// is shown. With the denoiser's marker: its canonical names, and keys that no rule knows under their own. Without: all
// keys as they are stored, behind the first prefix that any has; so a plugin can tell a relative by its name.
struct ProbedWeights {
  bool has_marker = false;
  std::map<std::string, Desc> weights;
  Documents documents = {};  // of the denoiser, and of the folder that it was looked for in
};
ProbedWeights probe_weights(const CheckpointSpec& spec, const std::filesystem::path& path);

}  // namespace lh
