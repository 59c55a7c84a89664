#include "io/lora_match.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "io/lora_delta.h"

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

LoraMatches match_lora(const LoraFile& file, const LoraNameTable& names, const std::map<std::string, Desc>& weights,
                       Unmatched unmatched) {
  const std::string path = file.file->path().string();
  if (!is_lora(*file.file)) refuse_no_lora(*file.file);
  std::vector<LoraProblem> problems = file.problems, strangers;
  std::map<std::string, int64_t> absent;  // modules, by encoder that is not there
  LoraMatches found;
  const auto change = [&](const std::string& weight, const LoraEntry& entry, const LoraPlace& place, bool bias) {
    std::vector<LoraMatch>& others = found[weight];
    for (const LoraMatch& other : others)
      if (overlap(other.place, place))
        problems.push_back({entry.name, fmt::format("changes the same weight as {}", other.entry->name)});
    others.push_back({&entry, place, bias});
  };
  for (const LoraEntry& entry : file.entries) {
    const LoraPlace* place = names.find(entry.name);
    if (place == nullptr) {
      const std::string component = names.component_by_prefix(entry.name);
      const bool there = component.empty() || std::ranges::any_of(weights, [&](const auto& item) {
                           return item.first.starts_with(component + ":");
                         });
      if (!there && unmatched != Unmatched::refuse)
        ++absent[component];
      else
        strangers.push_back({entry.name, there ? "no layer of this model has this name, in any tool's spelling"
                                               : fmt::format("it is for text encoder {}, which is not there: give its "
                                                             "file too",
                                                             component)});
      continue;
    }
    if (std::string why = misfit(entry, *place, weights); !why.empty()) {
      problems.push_back({entry.name, std::move(why)});
      continue;
    }
    if (entry.changes_weight()) change(weight_of(*place, weights), entry, *place, false);
    if (entry.has(LoraPart::diff_bias)) change(bias_of(*place), entry, *place, true);
  }
  if (unmatched != Unmatched::leave_out)
    problems.insert(problems.end(), strangers.begin(), strangers.end());
  else if (!strangers.empty())
    log_info("{}: {} modules match no layer of this model and are left out:{}", path, strangers.size(),
             listed(strangers));
  if (!problems.empty())
    fail(Code::data,
         "{}: {} of its parts cannot be applied to this model:{}\nUse a LoRA that was trained for this model; "
         "lora-host verify FILE --model MODEL shows every key",
         path, problems.size(), listed(problems));
  for (const auto& [component, count] : absent)
    log_info("{}: {} modules are for text encoder {}, which is not there: left out", path, count, component);
  return found;
}

}  // namespace lh
