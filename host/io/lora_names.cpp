// Forms of a name, and the table from all of them back to weights.
#include "io/lora_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace lh {
namespace {

constexpr std::string_view denoiser = "denoiser";
constexpr std::array<std::pair<LoraForm, std::string_view>, 5> form_texts{{{LoraForm::native, "{native}"},
                                                                           {LoraForm::native_flat, "{native_}"},
                                                                           {LoraForm::diffusers, "{diffusers}"},
                                                                           {LoraForm::diffusers_flat, "{diffusers_}"},
                                                                           {LoraForm::processor, "{processor}"}}};

// Prefixes that tools put before the denoiser's names, whatever the model: none, PEFT's own, LyCORIS', OneTrainer's.
constexpr std::array<std::string_view, 2> dotted_prefixes{"", "base_model.model."};
constexpr std::array<std::string_view, 2> flat_prefixes{"lycoris_", "lora_transformer_"};

std::string flat(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

// "a.attn1.to_q" is "a.attn1.processor.to_q", and "a.attn1.to_out.0" is "a.attn1.processor.to_out".
std::string processor(std::string name) {
  constexpr std::string_view last = ".to_out.0", attention = ".to_";
  if (name.ends_with(last)) name.resize(name.size() - 2);
  if (const size_t at = name.rfind(attention); at != std::string::npos) name.insert(at, ".processor");
  return name;
}

bool is_native(LoraForm form) { return form == LoraForm::native || form == LoraForm::native_flat; }

std::string formed(LoraForm form, const std::string& name) {
  switch (form) {
    case LoraForm::native:
    case LoraForm::diffusers: return name;
    case LoraForm::native_flat:
    case LoraForm::diffusers_flat: return flat(name);
    case LoraForm::processor: return processor(name);
  }
  return name;
}

std::string spelled_name(const LoraSpelling& spelling, const std::string& native, const std::string& diffusers) {
  const std::string& name = is_native(spelling.form) ? native : diffusers;
  return name.empty() ? std::string() : spelling.prefix + formed(spelling.form, name);
}

void add_once(std::vector<LoraSpelling>& list, const LoraSpelling& spelling) {
  if (std::ranges::find(list, spelling) == list.end()) list.push_back(spelling);
}

// Whether a rule of the key map tells how the rows of a LoRA's up matrix are ordered.
bool names_rows(const KeyRule* rule) { return rule == nullptr || rule->assemble != Assemble::transpose; }

}  // namespace

std::string LoraSpelling::text() const {
  const auto found = std::ranges::find(form_texts, form, &std::pair<LoraForm, std::string_view>::first);
  return prefix + std::string(found->second);
}

std::optional<LoraSpelling> parse_spelling(const std::string& text) {
  for (const auto& [form, hole] : form_texts)
    if (text.ends_with(hole) && text.find('{') == text.size() - hole.size())
      return LoraSpelling{text.substr(0, text.size() - hole.size()), form};
  return std::nullopt;
}

std::vector<LoraSpelling> format_spellings(const LoraNames& names, const std::string& format) {
  std::vector<LoraSpelling> list;
  if (format == "kohya")
    for (const std::string& text : names.kohya)
      list.push_back(parse_spelling(text).value_or(LoraSpelling{text, LoraForm::native_flat}));
  if (format == "comfyui")
    for (const std::string& prefix : names.native) list.push_back({prefix, LoraForm::native});
  if (format == "diffusers")
    for (const std::string& prefix : names.diffusers) list.push_back({prefix, LoraForm::diffusers});
  return list;
}

std::vector<LoraSpelling> read_spellings(const CheckpointSpec& spec, const ComponentSpec& component) {
  using enum LoraForm;
  const LoraNames& names = component.lora;
  std::vector<LoraSpelling> list;
  if (names.empty()) return list;
  for (const char* format : lora_formats)
    for (const LoraSpelling& spelling : format_spellings(names, format)) add_once(list, spelling);
  for (const LoraLoader& loader : spec.lora_loaders)
    for (const LoraLoaderRule& rule : loader.rules)
      if (std::ranges::find(rule.components, component.name) != rule.components.end())
        for (const LoraSpelling& spelling : rule.names) add_once(list, spelling);
  for (const LoraSpelling& spelling : format_spellings(names, "kohya"))
    for (const LoraForm form : {diffusers_flat, native_flat}) add_once(list, {spelling.prefix, form});
  for (const std::string& prefix : names.diffusers) {
    add_once(list, {prefix, LoraForm::native});
    add_once(list, {prefix, LoraForm::processor});
  }
  if (component.name != denoiser) return list;
  for (const std::string_view prefix : dotted_prefixes)
    for (const LoraForm form : {LoraForm::native, diffusers, LoraForm::processor})
      add_once(list, {std::string(prefix), form});
  for (const std::string_view prefix : flat_prefixes)
    for (const LoraForm form : {diffusers_flat, native_flat}) add_once(list, {std::string(prefix), form});
  return list;
}

std::vector<int64_t> part_rows(int64_t rows, int64_t inputs, size_t parts) {
  const auto count = static_cast<int64_t>(parts);
  if (const int64_t rest = rows - inputs; parts == 3 && rest > 0 && rest < 2 * inputs && rest % 2 == 0)
    return {inputs, rest / 2, rest / 2};
  const int64_t each = parts >= 4 ? inputs : rows / count;
  std::vector<int64_t> list(parts, each);
  list.back() = rows - each * (count - 1);
  if (list.back() <= 0 || (parts < 4 && list.back() != each)) return {};
  return list;
}

std::string LoraPlace::spelled(const LoraSpelling& spelling) const {
  return spelled_name(spelling, whole && !swapped_halves ? native : part, diffusers);
}

LoraNameTable::LoraNameTable(const CheckpointSpec& spec, const std::map<std::string, Desc>& weights) {
  constexpr std::string_view suffix = ".weight", bias = ".bias";
  std::map<std::string, KeyMap> maps;
  for (const ComponentSpec& component : spec.components) {
    spellings_.emplace_back(component.name, read_spellings(spec, component));
    maps.emplace(component.name, component.diffusers);
    if (component.name == denoiser) continue;
    for (const char* format : lora_formats)
      for (const LoraSpelling& spelling : format_spellings(component.lora, format))
        components_.emplace(spelling.prefix, component.name);
  }
  for (const auto& [name, desc] : weights) {
    if (desc.shape.rank() == 0 || name.ends_with(bias)) continue;
    const size_t colon = name.find(':');
    const std::string component = colon == std::string::npos ? std::string(denoiser) : name.substr(0, colon);
    std::string native = colon == std::string::npos ? name : name.substr(colon + 1);
    if (native.ends_with(suffix)) native.resize(native.size() - suffix.size());
    add(*spec.component(component), native, desc.shape, maps.at(component));
  }
}

void LoraNameTable::add(const ComponentSpec& component, const std::string& native, const Shape& weight,
                        const KeyMap& map) {
  const std::string module = component.name == denoiser ? native : fmt::format("{}:{}", component.name, native);
  const int64_t rows = weight[0], inputs = weight.with(0, 1).numel();
  LoraPlace whole{.component = component.name, .native = native, .module = module, .rows = rows};
  const auto& spellings =
      std::ranges::find(spellings_, component.name, [](const auto& item) { return item.first; })->second;
  const auto put = [&](const LoraPlace& place) {
    for (const LoraSpelling& spelling : spellings)
      if (std::string name = place.spelled(spelling); !name.empty()) places_.emplace(std::move(name), place);
  };
  for (const KeyMap::Diffusers& found :
       map.all_diffusers(native, inputs > 0 && rows % inputs == 0 ? rows / inputs : 0)) {
    if (!names_rows(found.rule)) continue;
    if (found.modules.size() == 1) {
      LoraPlace place = whole;
      place.diffusers = found.modules.front();
      place.swapped_halves = found.rule != nullptr && found.rule->assemble == Assemble::swap_halves;
      put(place);
      continue;
    }
    const std::vector<int64_t> parts = part_rows(rows, inputs, found.modules.size());
    int64_t first = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      LoraPlace place = whole;
      place.diffusers = found.modules[i];
      place.first_row = first;
      place.rows = parts[i];
      place.whole = false;
      put(place);
      first += parts[i];
    }
  }
  put(whole);
  for (const LoraPartName& part : component.lora.parts) {
    const auto numbers = KeyPattern(part.of).match(native);
    if (!numbers || part.end * inputs > rows) continue;
    LoraPlace place = whole;
    place.part = KeyPattern(part.name).fill(*numbers);
    place.first_row = part.first * inputs;
    place.rows = (part.end - part.first) * inputs;
    place.whole = false;
    put(place);
  }
}

const LoraPlace* LoraNameTable::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

std::string LoraNameTable::component_by_prefix(const std::string& name) const {
  for (const auto& [prefix, component] : components_)
    if (name.starts_with(prefix)) return component;
  return {};
}

LoraNamePatterns::LoraNamePatterns(const CheckpointSpec& spec) {
  constexpr std::string_view suffix = ".weight";
  const auto module_of = [&](const std::string& key) {
    if (key.ends_with("{*}")) return key;
    return key.ends_with(suffix) ? key.substr(0, key.size() - suffix.size()) : std::string();
  };
  for (const ComponentSpec& component : spec.components) {
    const std::vector<LoraSpelling> spellings = read_spellings(spec, component);
    std::vector<KeyRule> rules = component.diffusers;
    if (rules.empty()) rules.push_back({.native = "{*}", .diffusers = {"{*}"}});
    for (const LoraPartName& part : component.lora.parts) rules.push_back({.native = part.name, .diffusers = {}});
    for (const LoraSpelling& spelling : spellings)
      for (const KeyRule& rule : rules) {
        std::vector<std::string> names{is_native(spelling.form) ? rule.native : std::string()};
        if (!is_native(spelling.form)) names = rule.diffusers;
        for (std::string& name : names) {
          if (rule.exact) name = module_of(name);
          // A pattern that takes any text tells nothing without a prefix.
          if (name.empty() || (spelling.prefix.empty() && name.starts_with("{*}"))) continue;
          entries_.push_back({KeyPattern(spelling.prefix + formed(spelling.form, name)), {component.name, spelling}});
        }
      }
  }
}

std::optional<LoraNamePatterns::Match> LoraNamePatterns::find(const std::string& name) const {
  for (const Entry& entry : entries_)
    if (entry.pattern.match(name)) return entry.match;
  return std::nullopt;
}

}  // namespace lh
