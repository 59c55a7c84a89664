// Applies the modules of LoRA files to a weight as it is loaded.
#include "io/lora_merge.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "config/value.h"
#include "core/error.h"
#include "core/hash.h"
#include "io/lora_delta.h"
#include "io/lora_seal.h"

namespace lh {

LoraInput lora_input(const std::string& what, const std::string& text) {
  LoraInput lora{.path = schema::expand_home(text)};
  const size_t colon = text.rfind(':');
  std::error_code none;
  if (colon == text.npos || text.find('/', colon) != text.npos || std::filesystem::exists(lora.path, none)) return lora;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, lora.strength);
  if (error != std::errc() || stop != end || !(std::abs(lora.strength) <= 100))
    fail(Code::config, "{} {}: the strength after the colon must be a number, -100 to 100", what, text);
  lora.path = schema::expand_home(text.substr(0, colon));
  return lora;
}

LoraMerge::LoraMerge(const CheckpointSpec& spec, const std::map<std::string, Desc>& weights,
                     const std::vector<LoraInput>& files, Unmatched unmatched)
    : inputs_(files), unmatched_(unmatched) {
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
    require_finite(*files_.back().file);
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
  for (const auto& [weight, matches] : match_lora(files_[number], names, weights, unmatched_))
    for (const LoraMatch& match : matches) changes_[weight].push_back({number, match.entry, match.place, match.bias});
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

std::vector<LoraMerge::Source> LoraMerge::sources(const std::string& weight) const {
  std::vector<Source> list;
  const auto found = changes_.find(weight);
  if (found == changes_.end()) return list;
  for (const Change& change : found->second)
    if (change.foreign == nullptr)
      list.push_back({&files_[change.file], inputs_[change.file].strength, {change.entry, change.place, change.bias}});
  return list;
}

bool LoraMerge::changed_by_plugin(const std::string& weight) const {
  const auto found = changes_.find(weight);
  return found != changes_.end() &&
         std::ranges::any_of(found->second, [](const Change& change) { return change.foreign != nullptr; });
}

std::vector<std::string> LoraMerge::weights() const {
  std::vector<std::string> names;
  for (const auto& [name, changes] : changes_) names.push_back(name);
  return names;
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
