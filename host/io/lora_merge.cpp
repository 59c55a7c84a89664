// Applies the modules of LoRA files to a weight as it is loaded.
#include "io/lora_merge.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "io/lora_delta.h"
#include "io/lora_seal.h"

namespace lh {
namespace {

// Do two modules of a file change the same numbers?
bool overlap(const LoraPlace& a, const LoraPlace& b) {
  return a.first_row < b.first_row + b.rows && b.first_row < a.first_row + a.rows;
}

}  // namespace

std::string weight_of(const LoraPlace& place, const std::map<std::string, Desc>& weights) {
  const std::string name = place.module + ".weight";
  return weights.contains(name) ? name : place.module;
}

std::string bias_of(const LoraPlace& place) { return place.module + ".bias"; }

std::string misfit(const LoraEntry& entry, const LoraPlace& place, const std::map<std::string, Desc>& weights) {
  const Shape& weight = weights.at(weight_of(place, weights)).shape;
  const int64_t elements = weight.with(0, 1).numel(), inputs = weight.rank() > 1 ? weight[1] : 1;
  if (entry.changes_weight() && (entry.rows() != place.rows || entry.row_elements() != elements)) {
    const std::string part = place.whole ? "" : fmt::format(", of which this is {} rows", place.rows);
    return fmt::format("it changes [{}, {}], the weight is {}{}: it was trained for another model", entry.rows(),
                       entry.row_elements(), weight.text(), part);
  }
  if (entry.has(LoraPart::magnitude)) {
    const Shape& magnitude = entry.shape(LoraPart::magnitude);
    if (!magnitude_axis(magnitude, place.rows, inputs))
      return fmt::format("DoRA magnitude {}, expected [{}, 1] or [1, {}]", magnitude.text(), place.rows, inputs);
  }
  if (entry.has(LoraPart::diff_bias)) {
    const auto bias = weights.find(bias_of(place));
    const Shape& shape = entry.shape(LoraPart::diff_bias);
    if (bias == weights.end()) return "it changes a bias, and the layer has none";
    if (shape.numel() != place.rows)
      return fmt::format("it changes a bias by {}, the bias is {}", shape.text(), bias->second.shape.text());
  }
  return {};
}

LoraMerge::LoraMerge(const CheckpointSpec& spec, const std::map<std::string, Desc>& weights,
                     const std::vector<LoraInput>& files)
    : inputs_(files) {
  const LoraNameTable names(spec, weights);
  files_.reserve(files.size());  // entries are pointed to
  foreign_.resize(files.size());
  for (const LoraInput& input : inputs_) {
    files_.push_back(read_lora(input.path));
    check_lora_seal(*files_.back().file);
    if (input.foreign)
      add_foreign(names, weights, files_.size() - 1);
    else
      add(names, weights, files_.size() - 1);
  }
}

void LoraMerge::add_foreign(const LoraNameTable& names, const std::map<std::string, Desc>& weights, size_t number) {
  const ForeignLora& adapter = *inputs_[number].foreign;
  ForeignFile& file = foreign_[number] = read_foreign(files_[number].file, adapter, names, weights);
  if (!file.problems.empty())
    fail(Code::data,
         "{}: {} of its parts cannot be applied to this model by {}:{}\nUse a file that was trained for this "
         "model, with the adapter and options that its metadata name",
         file.file->path().string(), file.problems.size(), adapter.name(), listed(file.problems));
  for (const ForeignModule& module : file.modules) {
    const LoraPlace place{.component = module.component, .module = module.module};
    changes_[module.module + ".weight"].push_back({number, nullptr, place, false, &module});
    const std::string bias = bias_of(place);
    if (weights.contains(bias) && adapter.changes_bias(module.module, module.weight))
      changes_[bias].push_back({number, nullptr, place, true, &module});
  }
}

void LoraMerge::add(const LoraNameTable& names, const std::map<std::string, Desc>& weights, size_t number) {
  const LoraFile& file = files_[number];
  const std::string path = file.file->path().string();
  if (!is_lora(*file.file))
    fail(Code::data,
         "{}: not a LoRA: none of its {} tensors (the first is {}) is part of a known kind of adapter. Is it a model? "
         "Give that with --model",
         path, file.file->tensors().size(), file.file->tensors().empty() ? "missing" : file.file->tensors()[0].name);
  std::vector<LoraProblem> problems = file.problems;
  std::map<std::string, int64_t> absent;  // modules, by encoder that is not there
  std::map<std::string, std::vector<const Change*>> own;
  std::map<std::string, std::vector<Change>> found;
  const auto change = [&](const std::string& weight, const LoraEntry& entry, const LoraPlace& place, bool bias) {
    std::vector<Change>& others = found[weight];
    for (const Change& other : others)
      if (overlap(other.place, place))
        problems.push_back({entry.name, fmt::format("changes the same weight as {}", other.entry->name)});
    others.push_back({number, &entry, place, bias});
  };
  for (const LoraEntry& entry : file.entries) {
    const LoraPlace* place = names.find(entry.name);
    if (place == nullptr) {
      const std::string component = names.component_by_prefix(entry.name);
      if (component.empty() ||
          std::ranges::any_of(weights, [&](const auto& item) { return item.first.starts_with(component + ":"); }))
        problems.push_back({entry.name, "no layer of this model has this name, in any tool's spelling"});
      else
        ++absent[component];
      continue;
    }
    if (std::string why = misfit(entry, *place, weights); !why.empty()) {
      problems.push_back({entry.name, std::move(why)});
      continue;
    }
    if (entry.changes_weight()) change(weight_of(*place, weights), entry, *place, false);
    if (entry.has(LoraPart::diff_bias)) change(bias_of(*place), entry, *place, true);
  }
  if (!problems.empty())
    fail(Code::data,
         "{}: {} of its parts cannot be applied to this model:{}\nUse a LoRA that was trained for this model; "
         "lora-host verify FILE --model MODEL shows every key",
         path, problems.size(), listed(problems));
  for (const auto& [component, count] : absent)
    spdlog::info("{}: {} modules are for text encoder {}, which is not there: left out", path, count, component);
  for (auto& [weight, list] : found) std::ranges::move(list, std::back_inserter(changes_[weight]));
}

void LoraMerge::apply(const std::string& weight, const Shape& shape, std::span<float> values) const {
  const auto found = changes_.find(weight);
  if (found == changes_.end()) return;
  const int64_t inputs = shape.rank() > 1 ? shape[1] : 1, elements = shape.with(0, 1).numel();
  for (const Change& change : found->second) {
    const LoraPlace& place = change.place;
    const double strength = inputs_[change.file].strength;
    if (change.foreign != nullptr) {
      const ForeignModule& module = *change.foreign;
      const NamedTensors tensors = foreign_[change.file].read(module);
      const ForeignLora& adapter = *inputs_[change.file].foreign;
      if (change.bias)
        adapter.change_bias(module.module, module.weight, tensors, strength, values);
      else
        adapter.change_weight(module.module, module.weight, tensors, strength, values);
      continue;
    }
    if (!change.bias) {
      const WeightRows rows{.data = values.data() + place.first_row * elements,
                            .count = place.rows,
                            .inputs = inputs,
                            .taps = elements / std::max<int64_t>(inputs, 1),
                            .swapped_halves = place.swapped_halves};
      LoraDelta(files_[change.file], *change.entry).add_to(rows, strength);
      continue;
    }
    const HostTensor delta = read_f32(files_[change.file], change.entry->tensor(LoraPart::diff_bias));
    const WeightRows rows{.data = values.data() + place.first_row,
                          .count = place.rows,
                          .inputs = 1,
                          .swapped_halves = place.swapped_halves};
    for (int64_t r = 0; r < place.rows; ++r)
      rows.row(r)[0] += static_cast<float>(strength) * delta.as<float>()[static_cast<size_t>(r)];
  }
}

std::string LoraMerge::fingerprint(const std::string& component) const {
  std::set<size_t> used;
  for (const auto& [weight, list] : changes_)
    for (const Change& change : list)
      if (change.place.component == component) used.insert(change.file);
  std::string all;
  for (const size_t file : used) all += fmt::format("{}*{};", files_[file].file->fingerprint(), inputs_[file].strength);
  return all;
}

}  // namespace lh
