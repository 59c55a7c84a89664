#include "sample/lora_stack.h"

#include <algorithm>

#include "core/error.h"
#include "io/key_map.h"

namespace lh {
namespace {

struct Part {
  const LoraModule* module;
  int64_t first_row = 0;        // of the native module's output
  bool swapped_halves = false;  // the file has the rows' halves the other way round
};

// How a file may spell one native module: kohya, native with or without a prefix.
std::vector<std::string> native_spellings(const std::string& module, const CheckpointSpec& spec) {
  std::string kohya = spec.lora.kohya_prefix + module;
  std::ranges::replace(kohya, '.', '_');
  return {kohya, "diffusion_model." + module, spec.lora.diffusers_prefix + module, module};
}

const LoraModule* find(const LoraFile& file, const std::string& name) {
  const auto it = std::ranges::find(file.modules, name, &LoraModule::name);
  return it == file.modules.end() ? nullptr : &*it;
}

std::vector<Part> parts_of(const LoraFile& file, const std::string& module, const Shape& weight,
                           const CheckpointSpec& spec, const KeyMap& map) {
  for (const std::string& name : native_spellings(module, spec))
    if (const LoraModule* found = find(file, name)) return {{found}};
  std::vector<Part> parts;
  const auto split = map.diffusers(module, weight[0] % weight[1] == 0 ? weight[0] / weight[1] : 0);
  if (!split) return parts;
  // A fused module is in several parts, of which a file need not have all. Equal parts; four or more are q, k, v and an
  // MLP that takes the rest.
  const auto count = static_cast<int64_t>(split->modules.size()), each = count >= 4 ? weight[1] : weight[0] / count;
  const bool swapped = split->rule != nullptr && split->rule->assemble == Assemble::swap_halves;
  for (int64_t i = 0; i < count; ++i) {
    const std::string& name = split->modules[static_cast<size_t>(i)];
    for (const std::string& spelled : {spec.lora.diffusers_prefix + name, name})
      if (const LoraModule* found = find(file, spelled)) {
        parts.push_back({found, i * each, swapped});
        break;
      }
  }
  return parts;
}

}  // namespace

LoraStack::LoraStack(const Model& model, const std::vector<LoraInput>& files) {
  for (const LoraInput& input : files) add(model, input);
  for (auto& [name, combined] : modules_) {
    combined.spec.rank = static_cast<int64_t>(combined.up_columns.size());
    combined.spec.alpha = static_cast<double>(combined.spec.rank);  // scales are in the columns already
  }
}

void LoraStack::add(const Model& model, const LoraInput& input) {
  const LoraFile file = read_lora(input.path);
  if (file.modules.empty())
    fail(Code::data,
         "{}: not a LoRA: none of its {} tensors (the first is {}) is half of a down and up pair. Is it a model? Give "
         "that "
         "with --model",
         input.path.string(), file.others.size(), file.others.empty() ? "missing" : file.others.front());
  const ComponentSpec* denoiser = model.spec().component("denoiser");
  const KeyMap map(denoiser->diffusers);
  std::vector<const LoraModule*> used;
  for (const auto& [weight_name, desc] : model.checkpoint().weights()) {
    if (!weight_name.ends_with(".weight") || weight_name.find(':') != std::string::npos || desc.shape.rank() != 2)
      continue;
    const std::string module = weight_name.substr(0, weight_name.size() - 7);
    for (const Part& part : parts_of(file, module, desc.shape, model.spec(), map)) {
      const LoraModule& lora = *part.module;
      const int64_t rank = lora.down.desc.shape[0], out = lora.up.desc.shape[0];
      if (lora.down.desc.shape.numel() != rank * desc.shape[1] || part.first_row + out > desc.shape[0] ||
          lora.up.desc.shape.numel() != rank * out)
        fail(Code::data, "{}: {}: down {} and up {} do not fit the weight {}. Was it trained for another model?",
             input.path.string(), lora.name, lora.down.desc.shape.text(), lora.up.desc.shape.text(), desc.shape.text());
      Combined& combined = modules_[module];
      const auto down = lora.down.as<float>(), up = lora.up.as<float>();
      combined.down.insert(combined.down.end(), down.begin(), down.end());
      const auto scale = static_cast<float>(input.strength * lora.alpha / static_cast<double>(rank));
      for (int64_t r = 0; r < rank; ++r) {
        std::vector<float> column(static_cast<size_t>(desc.shape[0]), 0.0f);
        for (int64_t o = 0; o < out; ++o)
          column[static_cast<size_t>(part.first_row + o)] = scale * up[static_cast<size_t>(o * rank + r)];
        if (part.swapped_halves) std::rotate(column.begin(), column.begin() + desc.shape[0] / 2, column.end());
        combined.up_columns.push_back(std::move(column));
      }
      used.push_back(&lora);
    }
  }
  std::string unmatched;
  for (const LoraModule& m : file.modules)
    if (std::ranges::find(used, &m) == used.end()) unmatched += "\n  " + m.name;
  if (!unmatched.empty())
    fail(Code::data, "{}: these modules are not in the {} model:{}", input.path.string(), model.id(), unmatched);
  if (!file.others.empty() || file.modules.empty())
    fail(Code::data, "{}: expected pairs of LoRA matrices (LoHa, LoKr and DoRA are not supported), found{}",
         input.path.string(), file.others.empty() ? " none" : fmt::format(":\n  {}", fmt::join(file.others, "\n  ")));
}

const AdapterSpec* LoraStack::select(const std::string& module) const {
  const auto it = modules_.find(module);
  return it == modules_.end() ? nullptr : &it->second.spec;
}

Adapters LoraStack::load(Device& device, const Graph& graph) const {
  std::vector<AdaptedModule> adapted;
  for (const auto& [name, combined] : modules_) {
    const auto down = graph.params.find(down_name(name)), up = graph.params.find(up_name(name));
    if (down == graph.params.end()) continue;  // a layer that this picture size does not use
    adapted.push_back({name, down->second, up->second, combined.spec.alpha});
  }
  Adapters adapters(graph, adapted, {});
  adapters.allocate(device);
  for (size_t i = 0; i < adapted.size(); ++i) {
    const Combined& combined = modules_.at(adapted[i].name);
    const AdapterTensor &down = adapters.tensors()[2 * i], &up = adapters.tensors()[2 * i + 1];
    adapters.upload("p", down, HostTensor::from_floats(down.shape, combined.down));
    HostTensor matrix(Desc{DType::f32, up.shape});
    const auto rank = static_cast<size_t>(up.shape[1]);
    for (size_t r = 0; r < rank; ++r)
      for (size_t o = 0; o < combined.up_columns[r].size(); ++o)
        matrix.as<float>()[o * rank + r] = combined.up_columns[r][o];
    adapters.upload("p", up, matrix);
  }
  return adapters;
}

}  // namespace lh
