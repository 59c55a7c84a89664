// LoRA files of adapters that the table of suffixes (lora_keys.h) does not have: their plugin says what their tensors
// are and make of a weight.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/lora_names.h"
#include "io/lora_read.h"

namespace lh {

// Metadata by which a run says what its adapter was.
inline constexpr const char* network_entry = "lora_host.network";                  // id of the adapter
inline constexpr const char* network_options_entry = "lora_host.network_options";  // "{strength: 2}"
inline constexpr const char* network_layers_entry = "lora_host.network_layers";    // JSON: module -> [rank, alpha]
inline constexpr const char* lycoris_module = "lycoris.kohya";                     // ss_network_module of those it has

// Is it a file of an adapter that the table does not have? So it says itself.
bool is_foreign(const WeightFile& file);

// The adapter of a file; answered by compile/plugin_lora.h.
class ForeignLora {
 public:
  virtual ~ForeignLora() = default;
  virtual std::string name() const = 0;  // "adapter 'mine' of plugin 'my_plugin'"
  // Tensors of a module with this weight [out, in, kh, kw], by the ends of their keys; none: it leaves the layer alone.
  virtual std::map<std::string, Shape> tensors(const std::string& module, const Shape& weight) const = 0;
  // Does it change a bias of the layer as well?
  virtual bool changes_bias(const std::string& module, const Shape& weight) const = 0;
  // W + strength (W' - W) in place, in the order of files; of the bias [out] likewise. Any thread.
  virtual void change_weight(const std::string& module, const Shape& weight, const NamedTensors& tensors,
                             double strength, std::span<float> values) const = 0;
  virtual void change_bias(const std::string& module, const Shape& weight, const NamedTensors& tensors, double strength,
                           std::span<float> values) const = 0;
};

struct ForeignModule {
  std::string component, module;  // as in weights
  Shape weight;
  std::map<std::string, const StoredTensor*> tensors;  // by the end of their keys
};

struct ForeignFile {
  FilePtr file;
  std::vector<ForeignModule> modules;
  std::vector<LoraProblem>
      problems;  // keys that are no tensor of the adapter, tensors that are missing or of other shapes
  NamedTensors read(const ForeignModule& module) const;  // float32
};

// weights: canonical names and shapes of the checkpoint.
ForeignFile read_foreign(const FilePtr& file, const ForeignLora& adapter, const LoraNameTable& names,
                         const std::map<std::string, Desc>& weights);

}  // namespace lh
