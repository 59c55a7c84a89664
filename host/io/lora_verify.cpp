// Follows each program's rules over the keys of a file and says which it leaves.
#include "io/lora_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "io/lora_delta.h"
#include "io/lora_inspect.h"
#include "io/lora_merge.h"
#include "io/lora_names.h"
#include "io/lora_scale.h"
#include "io/lora_seal.h"

namespace lh {
namespace {

constexpr std::string_view retrain = "train a plain LoRA with lora-host, in a format for this program";
constexpr std::string_view no_lora = "remove the key from the file";
constexpr std::string_view other_model = "use a LoRA that was trained for this model";
constexpr std::string_view damaged = "the file is incomplete: fetch or save it again";

// A format that lora-host writes, as a loader sees it.
struct WrittenFormat {
  const char* name;
  const char* family;
};
constexpr WrittenFormat written_formats[] = {{"kohya", "lora_down"}, {"comfyui", "lora_down"}, {"diffusers", "lora_A"}};

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::ranges::find(list, text) != list.end();
}

// What `sample --lora` makes of a file of a plugin's adapter.
ProgramReport check_foreign(const LoraFile& file, const ForeignLora& adapter, const LoraNameTable& names,
                            const std::map<std::string, Desc>& weights, int64_t& modules) {
  const ForeignFile found = read_foreign(file.file, adapter, names, weights);
  modules = static_cast<int64_t>(found.modules.size());
  ProgramReport report{.program = own_program, .meant = true};
  for (const LoraProblem& problem : found.problems)
    report.issues.push_back({problem.key, problem.why, std::string(other_model)});
  report.loaded = static_cast<int64_t>(file.file->tensors().size()) - static_cast<int64_t>(report.issues.size());
  return report;
}

class ProgramCheck {
 public:
  ProgramCheck(const LoraLoader& loader, const CheckpointSpec& spec, const LoraFile& file,
               const std::map<std::string, Desc>& weights, const LoraNameTable& names)
      : loader_(loader), spec_(spec), file_(file), weights_(weights), names_(names) {
    report_.program = loader.program;
  }

  ProgramReport run() {
    for (const LoraEntry& entry : file_.entries) check(entry);
    for (const LoraProblem& problem : file_.problems) {
      const auto key = split_lora_key(problem.key);
      const std::string_view fix = !key ? no_lora : key->part == LoraPart::unsupported ? retrain : damaged;
      issue(problem.key, problem.why, std::string(fix));
    }
    report_.meant = taken_ > 0 && refused_ == 0;
    return std::move(report_);
  }

 private:
  void check(const LoraEntry& entry) {
    const LoraPlace* place = names_.find(entry.name);
    if (place == nullptr) return check_by_prefix(entry);
    if (const std::string why = misfit(entry, *place, weights_); !why.empty())
      return all(entry, why, std::string(other_model));
    std::string why;
    const Rules rules = rules_for(entry, *place, why);
    ++(rules.empty() ? refused_ : taken_);
    if (rules.empty()) return all(entry, why, format_that_loads(*place));
    for (const auto& [part, tensor] : entry.parts) check_tensor(entry, *place, rules, part, tensor);
  }

  // A text encoder that is not at hand: its names cannot be checked, or no model has such names.
  void check_by_prefix(const LoraEntry& entry) {
    const std::string component = names_.component_by_prefix(entry.name);
    const bool there = std::ranges::any_of(
        weights_, [&](const auto& item) { return !component.empty() && item.first.starts_with(component + ":"); });
    if (component.empty() || there)
      return all(entry, "no layer of this model has this name, in any tool's spelling", std::string(other_model));
    if (takes_component(component))
      report_.unchecked += static_cast<int64_t>(entry.parts.size());
    else
      all(entry, fmt::format("{} loads nothing for {}", loader_.program, component),
          "leave this text encoder out of the LoRA");
  }

  bool takes_component(const std::string& component) const {
    return std::ranges::any_of(loader_.rules,
                               [&](const LoraLoaderRule& rule) { return contains(rule.components, component); });
  }

  using Rules = std::vector<const LoraLoaderRule*>;

  // The rules that take the module by its name; none, with the reason, where it is not loaded.
  Rules rules_for(const LoraEntry& entry, const LoraPlace& place, std::string& why) const {
    Rules rules;
    std::string known;
    for (const LoraLoaderRule& rule : loader_.rules) {
      if (!contains(rule.components, place.component)) continue;
      const bool named = std::ranges::any_of(
          rule.names, [&](const LoraSpelling& spelling) { return place.spelled(spelling) == entry.name; });
      for (const LoraSpelling& spelling : rule.names)
        if (const std::string text = spelling.text(); known.find(text) == std::string::npos)
          known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
      if (!named) continue;
      if (std::string no = refused(rule, place); !no.empty())
        why = std::move(no);
      else if (!any_tensor(rule, entry))
        why = fmt::format("{} loads such names with other tensors: {}", loader_.program, fmt::join(rule.tensors, ", "));
      else
        rules.push_back(&rule);
    }
    if (why.empty())
      why = known.empty()
                ? fmt::format("{} loads nothing for {}", loader_.program, place.component)
                : fmt::format("{} loads no such names for {}; it loads {}", loader_.program, place.component, known);
    return rules;
  }

  // Is there a matrix among the tensors that the rule takes?
  static bool any_tensor(const LoraLoaderRule& rule, const LoraEntry& entry) {
    return std::ranges::any_of(entry.parts, [&](const auto& item) {
      return item.first != LoraPart::alpha && item.first != LoraPart::magnitude &&
             rule.tensors.contains(std::string(item.second.family));
    });
  }

  bool of_this_model(const LoraLoaderRule& rule) const {
    return rule.not_of.empty() || !weights_.contains(rule.not_of);
  }

  // Why a rule with the right names does not take a module; empty: it does.
  std::string refused(const LoraLoaderRule& rule, const LoraPlace& place) const {
    const auto fits = [&](const Pattern& pattern) { return pattern.matches(place.native); };
    if ((!rule.only.empty() && std::ranges::none_of(rule.only, fits)) || std::ranges::any_of(rule.except, fits))
      return fmt::format("{} does not load this layer by such a name", loader_.program);
    for (const std::string& prefix : rule.not_beside)
      if (std::ranges::any_of(file_.file->tensors(), [&](const StoredTensor& t) { return t.name.starts_with(prefix); }))
        return fmt::format("{} does not load it beside keys that start with {}", loader_.program, prefix);
    if (!of_this_model(rule))
      return fmt::format("{} does not know this model, which has {}", loader_.program, rule.not_of);
    for (const auto& [weight, shape] : rule.full_size) {
      const auto found = weights_.find(weight);
      if (found != weights_.end() && found->second.shape != shape)
        return fmt::format("{} loads it for models of the full size only, with {} {}; here it is {}", loader_.program,
                           weight, shape.text(), found->second.shape.text());
    }
    return {};
  }

  void check_tensor(const LoraEntry& entry, const LoraPlace& place, const Rules& rules, LoraPart part,
                    const LoraTensor& tensor) {
    const std::string& key = tensor.stored->name;
    std::string family(tensor.family);
    if (part == LoraPart::magnitude && rows_axis(entry, place) && family == "dora_scale") family = output_axis_family;
    if (std::ranges::none_of(rules, [&](const LoraLoaderRule* rule) { return rule->tensors.contains(family); })) {
      issue(key,
            family == output_axis_family
                ? fmt::format("{} takes other norms for a DoRA magnitude of rows: other images", loader_.program)
                : fmt::format("{} does not load this tensor", loader_.program),
            part == LoraPart::alpha ? format_that_loads(place) : std::string(retrain));
      return;
    }
    if (part == LoraPart::down && entry.scale() != 1 && !reads_scale(entry, rules)) {
      issue(key,
            fmt::format("its scale is {:g} by its {}, which {} does not read: it applies 1", entry.scale(),
                        entry.alpha_source, loader_.program),
            "save it with alpha tensors, or multiply its up matrices by the scale");
      return;
    }
    const bool one_rank = std::ranges::all_of(rules, &LoraLoaderRule::one_rank);
    if (one_rank && part == LoraPart::down && entry.rank != first_rank(place.component)) {
      issue(key,
            fmt::format("rank {} beside modules of rank {}: {} scales all by the first one's rank", entry.rank,
                        first_rank(place.component), loader_.program),
            "save it with save.format diffusers, which gives all modules of a component one rank");
      return;
    }
    ++report_.loaded;
  }

  bool rows_axis(const LoraEntry& entry, const LoraPlace& place) const {
    const Shape& weight = weights_.at(weight_of(place, weights_)).shape;
    const auto axis = magnitude_axis(entry.shape(LoraPart::magnitude), place.rows, weight.rank() > 1 ? weight[1] : 1);
    return axis == MagnitudeAxis::output;
  }

  // An alpha tensor is looked at as every tensor is; a file beside the LoRA's is read by PEFT alone.
  bool reads_scale(const LoraEntry& entry, const Rules& rules) const {
    if (entry.alpha_source.empty()) return true;
    return entry.alpha_source == adapter_metadata_entry && std::ranges::any_of(rules, [](const LoraLoaderRule* rule) {
             return rule->tensors.contains(std::string(metadata_family));
           });
  }

  int64_t first_rank(const std::string& component) const {
    for (const LoraEntry& entry : file_.entries)
      if (const LoraPlace* place = names_.find(entry.name); place != nullptr && place->component == component)
        return entry.rank;
    return 0;
  }

  // What to save instead so that this program loads it.
  std::string format_that_loads(const LoraPlace& place) const {
    const LoraNames& names = spec_.component(place.component)->lora;
    std::string formats;
    for (const WrittenFormat& format : written_formats) {
      const std::vector<LoraSpelling> spellings = format_spellings(names, format.name);
      if (spellings.empty()) continue;
      const LoraSpelling& spelling = spellings.front();
      const std::string name = place.spelled(spelling);
      const auto same = [&](const LoraSpelling& other) {
        return other == spelling || (!name.empty() && place.spelled(other) == name);
      };
      const bool loads = std::ranges::any_of(loader_.rules, [&](const LoraLoaderRule& rule) {
        return contains(rule.components, place.component) && std::ranges::any_of(rule.names, same) &&
               rule.tensors.contains(format.family) && refused(rule, place).empty();
      });
      if (loads) formats += (formats.empty() ? "" : " or ") + std::string(format.name);
    }
    if (!formats.empty()) return fmt::format("save it with save.format {}", formats);
    const bool knows_model = std::ranges::any_of(loader_.rules, [&](const LoraLoaderRule& rule) {
      return contains(rule.components, place.component) && of_this_model(rule);
    });
    return knows_model ? "leave this layer out of the LoRA (network.ignore_if_contains)" : "use it in another program";
  }

  void issue(const std::string& key, const std::string& why, const std::string& fix) {
    report_.issues.push_back({key, why, fix});
  }

  void all(const LoraEntry& entry, const std::string& why, const std::string& fix) {
    for (const auto& [part, tensor] : entry.parts) issue(tensor.stored->name, why, fix);
  }

  const LoraLoader& loader_;
  const CheckpointSpec& spec_;
  const LoraFile& file_;
  const std::map<std::string, Desc>& weights_;
  const LoraNameTable& names_;
  ProgramReport report_;
  int64_t taken_ = 0, refused_ = 0;  // modules, by their names
};

std::vector<LoraIssue> damage_of(const WeightFile& file) {
  std::vector<LoraIssue> damage;
  try {
    check_lora_seal(file);
  } catch (const ReadError&) {
    throw;
  } catch (const Error& e) {
    damage.push_back({"", e.what(), "take the file from where it was written, or train it again"});
  }
  for (const StoredTensor& tensor : file.tensors()) {
    const HostTensor values = file.read(tensor.name);
    const int64_t elements = tensor.desc.shape.numel();
    const int64_t bad = count_non_finite(tensor.desc.dtype, values.data.data(), elements);
    if (bad == 0) continue;
    damage.push_back(
        {tensor.name,
         fmt::format("{} of {} values are a NaN or an infinity as {}", bad, elements, dtype_name(tensor.desc.dtype)),
         "save it with save.dtype: bf16 or fp32, or train it again with a lower train.lr"});
  }
  return damage;
}

}  // namespace

bool VerifyReport::good(const std::vector<std::string>& asked) const {
  if (!damage.empty()) return false;
  bool any = false;
  for (const ProgramReport& program : programs) {
    if (asked.empty() ? !program.meant : !contains(asked, program.program)) continue;
    any = true;
    if (!program.issues.empty()) return false;
  }
  return any;
}

VerifyReport verify_lora(const LoraFile& file, const CheckpointSpec& spec, const std::map<std::string, Desc>& weights,
                         const std::vector<std::string>& asked, const ForeignLora* foreign) {
  std::vector<std::string> known;
  for (const LoraLoader& loader : spec.lora_loaders) known.push_back(loader.program);
  if (foreign != nullptr) known.emplace_back(own_program);
  for (const std::string& program : asked)
    if (!contains(known, program))
      fail(Code::config, "--for {}: this model's plugin knows nothing of it; it knows {}", program,
           known.empty() ? "no program" : fmt::format("{}", fmt::join(known, ", ")));
  const LoraNameTable names(spec, weights);
  VerifyReport report{.keys = static_cast<int64_t>(file.file->tensors().size()),
                      .modules = static_cast<int64_t>(file.entries.size()),
                      .programs = {},
                      .damage = damage_of(*file.file)};
  if (foreign != nullptr) report.programs.push_back(check_foreign(file, *foreign, names, weights, report.modules));
  for (const LoraLoader& loader : spec.lora_loaders)
    report.programs.push_back(ProgramCheck(loader, spec, file, weights, names).run());
  return report;
}

std::string verify_text(const VerifyReport& report, const std::string& path) {
  std::string out = fmt::format("{}: {} keys, {} modules\n", path, report.keys, report.modules);
  for (const LoraIssue& issue : report.damage)
    out += fmt::format("  {}: {}\n    fix: {}\n", issue.key.empty() ? "the file" : printable(issue.key),
                       printable(issue.why), issue.fix);
  for (const ProgramReport& program : report.programs) {
    out += fmt::format("  {:<10} {} loaded, {} unmatched{}{}\n", program.program, program.loaded, program.issues.size(),
                       program.unchecked > 0
                           ? fmt::format(", {} not checked (text encoders that were not given)", program.unchecked)
                           : "",
                       program.meant || program.issues.empty() ? "" : " (not a format for it)");
    // One line for all keys with the same reason, with a few of them.
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
    for (const LoraIssue& issue : program.issues) reasons[{issue.why, issue.fix}].push_back(issue.key);
    for (const auto& [reason, keys] : reasons) {
      out += fmt::format("    {} key{}: {}\n      fix: {}\n", keys.size(), keys.size() == 1 ? "" : "s",
                         printable(reason.first), reason.second);
      for (size_t i = 0; i < std::min<size_t>(keys.size(), 5); ++i)
        out += fmt::format("      {}\n", printable(keys[i]));
      if (keys.size() > 5) out += fmt::format("      and {} more (--json lists all)\n", keys.size() - 5);
    }
  }
  return out;
}

nlohmann::json verify_json(const VerifyReport& report, const std::vector<std::string>& asked) {
  using nlohmann::json;
  json out{{"keys", report.keys},
           {"modules", report.modules},
           {"good", report.good(asked)},
           {"programs", json::array()},
           {"damage", json::array()}};
  for (const LoraIssue& issue : report.damage)
    out["damage"].push_back({{"key", issue.key}, {"why", issue.why}, {"fix", issue.fix}});
  for (const ProgramReport& program : report.programs) {
    json one{{"program", program.program},         {"meant", program.meant},         {"loaded", program.loaded},
             {"unmatched", program.issues.size()}, {"unchecked", program.unchecked}, {"issues", json::array()}};
    for (const LoraIssue& issue : program.issues)
      one["issues"].push_back({{"key", issue.key}, {"why", issue.why}, {"fix", issue.fix}});
    out["programs"].push_back(std::move(one));
  }
  return out;
}

}  // namespace lh
