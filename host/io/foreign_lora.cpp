#include "io/foreign_lora.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

constexpr const char* alpha_key = "alpha";

// The module and the end of the key; nothing where no layer of the model has such a name.
struct Split {
  const LoraPlace* place;
  std::string key;
};
std::optional<Split> split(const std::string& name, const LoraNameTable& names) {
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
    if (const LoraPlace* place = names.find(name.substr(0, dot))) return Split{place, name.substr(dot + 1)};
  return std::nullopt;
}

}  // namespace

bool is_foreign(const WeightFile& file) {
  const auto module = file.metadata().find("ss_network_module");
  const bool in_table = module != file.metadata().end() && module->second == lycoris_module;
  return file.metadata().contains(network_entry) && !in_table;
}

ForeignFile read_foreign(const FilePtr& file, const ForeignLora& adapter, const LoraNameTable& names,
                         const std::map<std::string, Desc>& weights) {
  ForeignFile out{file, {}, {}};
  std::map<std::string, ForeignModule> found;
  const auto wrong = [&](const std::string& key, const std::string& why) { out.problems.push_back({key, why}); };
  for (const StoredTensor& tensor : file->tensors()) {
    const auto at = split(tensor.name, names);
    if (!at || !at->place->whole || at->place->swapped_halves) {
      wrong(tensor.name, "no layer of this model has this name, in any tool's spelling");
      continue;
    }
    ForeignModule& module = found[at->place->module];
    module.component = at->place->component;
    module.module = at->place->module;
    module.weight = weights.at(at->place->module + ".weight").shape;
    if (at->key != alpha_key && !module.tensors.emplace(at->key, &tensor).second)
      wrong(tensor.name, "the module has this tensor twice");
  }
  for (auto& [name, module] : found) {
    const std::map<std::string, Shape> wanted = adapter.tensors(name, module.weight);
    for (const auto& [key, tensor] : module.tensors) {
      const auto one = wanted.find(key);
      if (one == wanted.end())
        wrong(tensor->name, fmt::format("{} has no such tensor for a layer {}", adapter.name(), module.weight.text()));
      else if (one->second != tensor->desc.shape || !is_float(tensor->desc.dtype))
        wrong(tensor->name, fmt::format("it is {}, {} has {} for a layer {}", tensor->desc.text(), adapter.name(),
                                        one->second.text(), module.weight.text()));
    }
    for (const auto& [key, shape] : wanted)
      if (!module.tensors.contains(key)) wrong(name, fmt::format("its {} {} is missing", key, shape.text()));
    out.modules.push_back(std::move(module));
  }
  return out;
}

NamedTensors ForeignFile::read(const ForeignModule& module) const {
  NamedTensors values;
  for (const auto& [key, tensor] : module.tensors) values[key] = converted(file->read(tensor->name), DType::f32);
  return values;
}

}  // namespace lh
