#include "plugin/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "core/error.h"
#include "plugin/recipe_tokenizer.h"

namespace lh {

std::string_view objective_name(Objective objective) {
  switch (objective) {
    case Objective::flow: return "flow";
    case Objective::epsilon: return "epsilon";
    case Objective::v_prediction: return "v_prediction";
  }
  return "";
}

double ResolutionShift::mu(int64_t tokens) const {
  return base + (static_cast<double>(tokens) - base_tokens) * (max - base) / (max_tokens - base_tokens);
}

namespace {

struct SourceName {
  const char* name;
  InputSpec::Source source;
  bool dotted;  // "conditioner.text"
};
constexpr SourceName source_names[] = {
    {"conditioner", InputSpec::Source::conditioner, true},
    {"mask", InputSpec::Source::mask, true},
    {"lengths", InputSpec::Source::lengths, true},
    {"time", InputSpec::Source::time, false},
    {"sigma", InputSpec::Source::sigma, false},
    {"log_snr", InputSpec::Source::log_snr, false},
    {"guidance", InputSpec::Source::guidance, false},
    {"picture", InputSpec::Source::picture, false},
    {"image", InputSpec::Source::image, true},
    {"constant", InputSpec::Source::constant, false},
};

}  // namespace

std::string InputSpec::text() const {
  const auto named = std::ranges::find(source_names, source, &SourceName::source);
  return named->dotted ? fmt::format("{}.{}", named->name, of) : named->name;
}

bool Recipe::guided() const {
  return std::ranges::any_of(inputs, [](const auto& i) { return i.second.source == InputSpec::Source::guidance; });
}

bool LoraTargets::contain(const std::string& module) const {
  return std::ranges::any_of(patterns_, [&](const std::regex& p) { return std::regex_match(module, p); });
}

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr int64_t many = int64_t{1} << 31;

class RecipeReader {
 public:
  explicit RecipeReader(const std::string& plugin) : plugin_(plugin) {}

  Recipe read(const YAML::Node& root) const {
    check_fields(root, "the recipe",
                 {"family", "variant", "objective", "latents", "other_latents", "inputs", "denoisers", "tokenizers",
                  "noise_schedule", "timestep", "sampling", "lora", "metadata"});
    Recipe out;
    out.family = text(need(root, "family", "the recipe"), "family");
    set(root, "variant", out.variant);
    out.objective = objective(need(root, "objective", "the recipe"));
    out.latents = latents(need(root, "latents", "the recipe"));
    for (const auto& item : root["other_latents"])
      out.other_latents[text(item.first, "latents")] = latents(item.second);
    for (const auto& item : root["tokenizers"])
      out.tokenizers[text(item.first, "an encoder")] = parse_tokenizer(item.second, plugin_);
    read_inputs(need(root, "inputs", "the recipe"), out);
    if (const YAML::Node list = root["denoisers"]) out.denoisers = denoisers(list);
    out.timestep = timestep(need(root, "timestep", "the recipe"), out.objective);
    if (const YAML::Node noise = root["noise_schedule"]) {
      if (out.objective == Objective::flow) wrong(noise, "noise_schedule belongs to epsilon and v_prediction models");
      out.noise_schedule = noise_schedule(noise, out.objective);
    } else if (out.objective != Objective::flow) {
      wrong(root["objective"], fmt::format("objective {} needs a noise_schedule", objective_name(out.objective)));
    }
    out.sampling = sampling(need(root, "sampling", "the recipe"), out);
    read_lora(need(root, "lora", "the recipe"), out);
    for (const auto& item : root["metadata"])
      out.metadata[text(item.first, "a metadata key")] = text(item.second, "metadata");
    return out;
  }

  [[noreturn]] void wrong(const YAML::Mark& mark, const std::string& what) const {
    fail(Code::plugin, "plugin {}: recipe line {}: {}", plugin_, mark.line + 1, what);
  }

 private:
  [[noreturn]] void wrong(const YAML::Node& node, const std::string& what) const { wrong(node.Mark(), what); }

  void check_fields(const YAML::Node& node, const std::string& where, std::initializer_list<const char*> known) const {
    if (!node.IsMap()) wrong(node, fmt::format("{} must be a mapping", where));
    std::vector<std::string> seen;
    for (const auto& item : node) {
      const std::string field = text(item.first, "a field's name");
      if (std::ranges::find(known, field) == known.end())
        wrong(item.first, fmt::format("unknown field `{}` in {}; known: {}", field, where, fmt::join(known, ", ")));
      if (std::ranges::find(seen, field) != seen.end())
        wrong(item.first, fmt::format("field `{}` is there twice in {}", field, where));
      seen.push_back(field);
    }
  }

  YAML::Node need(const YAML::Node& node, const char* field, const char* where) const {
    if (const YAML::Node found = node[field]) return found;
    wrong(node, fmt::format("{} needs the field `{}`", where, field));
  }

  std::string text(const YAML::Node& node, const std::string& what) const {
    if (!node.IsScalar()) wrong(node, fmt::format("{} must be text", what));
    return node.Scalar();
  }

  std::string choice(const YAML::Node& node, const char* field, std::initializer_list<const char*> known) const {
    std::string value = text(node, field);
    if (std::ranges::find(known, value) == known.end())
      wrong(node, fmt::format("{} `{}` is not known to this host; known: {}", field, value, fmt::join(known, ", ")));
    return value;
  }

  std::vector<std::string> patterns(const YAML::Node& node, const std::string& what) const {
    std::vector<std::string> list;
    if (!node.IsSequence()) wrong(node, fmt::format("{} must be a list of regular expressions", what));
    for (const auto& item : node) {
      list.push_back(text(item, "an item of " + what));
      try {
        const std::regex pattern(list.back());
      } catch (const std::regex_error& e) {
        wrong(item, fmt::format("{}: `{}` is no regular expression: {}", what, list.back(), e.what()));
      }
    }
    return list;
  }

  // Reads a field into `out`, which keeps its default when the field is not there.
  void set(const YAML::Node& node, const char* field, std::string& out) const {
    if (const YAML::Node found = node[field]) out = text(found, field);
  }
  void set(const YAML::Node& node, const char* field, bool& out) const {
    const YAML::Node found = node[field];
    if (found && !(found.IsScalar() && YAML::convert<bool>::decode(found, out)))
      wrong(found, fmt::format("{} must be true or false", field));
  }
  template <typename T>
  void set(const YAML::Node& node, const char* field, T& out, double low, double high) const {
    const YAML::Node found = node[field];
    if (!found) return;
    const bool number = found.IsScalar() && YAML::convert<T>::decode(found, out);
    if (!number || !(static_cast<double>(out) >= low && static_cast<double>(out) <= high))
      wrong(found, fmt::format("{} must be {} from {} to {}", field,
                               std::is_integral_v<T> ? "a whole number" : "a number", low, high));
  }
  template <typename T>
  void set_needed(const YAML::Node& node, const char* field, const char* where, T& out, double low, double high) const {
    need(node, field, where);
    set(node, field, out, low, high);
  }

  Objective objective(const YAML::Node& node) const {
    const std::string name = choice(node, "objective", {"flow", "epsilon", "v_prediction"});
    return name == "flow" ? Objective::flow : name == "epsilon" ? Objective::epsilon : Objective::v_prediction;
  }

  LatentSpec latents(const YAML::Node& node) const {
    check_fields(node, "latents", {"channels", "axes", "downscale", "multiple"});
    LatentSpec out;
    set_needed(node, "channels", "latents", out.channels, 1, 4096);
    set(node, "multiple", out.multiple, 1, 1024);
    std::vector<std::string> axes{"height", "width"};
    if (const YAML::Node given = node["axes"]) axes = texts(given, "axes");
    out.time = axes == std::vector<std::string>{"time", "height", "width"};
    if (!out.time && axes != std::vector<std::string>{"height", "width"})
      wrong(node["axes"], "axes must be [height, width] or [time, height, width]");
    const YAML::Node downscale = need(node, "downscale", "latents");
    if (!downscale.IsSequence()) {
      set(node, "downscale", out.downscale, 1, 1024);
      return out;
    }
    std::vector<int64_t> each;
    for (const auto& item : downscale) {
      int64_t value = 0;
      if (!YAML::convert<int64_t>::decode(item, value) || value < 1 || value > 1024)
        wrong(item, "downscale must be a whole number from 1 to 1024 for each of the axes");
      each.push_back(value);
    }
    if (each.size() != axes.size())
      wrong(downscale, fmt::format("downscale has {} numbers for {} axes", each.size(), axes.size()));
    if (each.back() != each[each.size() - 2]) wrong(downscale, "height and width must have the same downscale");
    out.downscale = each.back();
    if (out.time) out.time_downscale = each.front();
    return out;
  }

  std::vector<std::string> texts(const YAML::Node& node, const std::string& what) const {
    if (!node.IsSequence()) wrong(node, fmt::format("{} must be a list", what));
    std::vector<std::string> list;
    for (const auto& item : node) list.push_back(text(item, "an item of " + what));
    return list;
  }

  void read_inputs(const YAML::Node& node, Recipe& out) const {
    if (!node.IsMap()) wrong(node, "inputs must be a mapping of the denoiser's inputs to their sources");
    for (const auto& item : node) {
      const std::string name = text(item.first, "an input's name");
      if (name == "latents") wrong(item.first, "`latents` always are the noisy latents; leave it out");
      if (!out.inputs.emplace(name, input(name, item.second)).second)
        wrong(item.first, fmt::format("input `{}` is there twice", name));
    }
    for (const auto& item : node) {
      const InputSpec& spec = out.inputs.at(item.first.Scalar());
      if (spec.source != InputSpec::Source::mask && spec.source != InputSpec::Source::lengths) continue;
      const auto of = out.inputs.find(spec.of);
      if (of == out.inputs.end() || of->second.source != InputSpec::Source::conditioner || of->second.mask.empty())
        wrong(item.second, fmt::format("`{}`: expected an input from the conditioner that has a mask", spec.text()));
    }
  }

  InputSpec input(const std::string& name, const YAML::Node& node) const {
    using Source = InputSpec::Source;
    const std::string what = fmt::format("input `{}`", name);
    if (!node.IsMap()) wrong(node, what + " must be a mapping with a `source`");
    const std::string source = text(need(node, "source", what.c_str()), "source");
    const size_t dot = source.find('.');
    const std::string kind = source.substr(0, dot);
    InputSpec out;
    const auto known = std::ranges::find(source_names, kind, &SourceName::name);
    if (known == std::end(source_names) || known->dotted != (dot != std::string::npos)) {
      std::string list;
      for (const SourceName& s : source_names)
        list += fmt::format("{}{}{}", list.empty() ? "" : ", ", s.name, s.dotted ? ".<name>" : "");
      wrong(node["source"], fmt::format("source `{}` is not known to this host; known: {}", source, list));
    }
    out.source = known->source;
    if (known->dotted) out.of = source.substr(dot + 1);
    switch (out.source) {
      case Source::conditioner:
        check_fields(node, what, {"source", "mask", "round"});
        if (const YAML::Node mask = node["mask"]) {
          const std::string output = text(mask, "mask");
          if (!output.starts_with("conditioner.") || output.size() == 12)
            wrong(mask, "mask must be an output of the conditioner, such as conditioner.text_mask");
          out.mask = output.substr(12);
        }
        set(node, "round", out.round, 1, 4096);
        if (out.round > 1 && out.mask.empty()) wrong(node["round"], "round goes with a mask");
        break;
      case Source::time:
      case Source::sigma:
      case Source::log_snr:
        check_fields(node, what, {"source", "per"});
        if (node["per"]) out.per_token = choice(node["per"], "per", {"sample", "token"}) == "token";
        break;
      case Source::picture:
        check_fields(node, what, {"source", "values"});
        out.numbers = numbers(need(node, "values", what.c_str()));
        break;
      case Source::image: {
        check_fields(node, what, {"source", "as"});
        const std::string as = choice(need(node, "as", what.c_str()), "as", {"latents", "pixels", "mask"});
        out.image = as == "latents"  ? InputSpec::Image::latents
                    : as == "pixels" ? InputSpec::Image::pixels
                                     : InputSpec::Image::mask;
        break;
      }
      case Source::constant:
        check_fields(node, what, {"source", "value"});
        set_needed(node, "value", what.c_str(), out.value, -infinite, infinite);
        break;
      default: check_fields(node, what, {"source"});
    }
    return out;
  }

  std::vector<InputSpec::Number> numbers(const YAML::Node& node) const {
    if (!node.IsSequence() || node.size() == 0) wrong(node, "values must be a list of names and numbers");
    std::vector<InputSpec::Number> list;
    for (const auto& item : node) {
      InputSpec::Number number;
      if (!item.IsScalar() || !YAML::convert<double>::decode(item, number.value))
        number.name =
            choice(item, "value", {"original_height", "original_width", "crop_top", "crop_left", "height", "width"});
      list.push_back(number);
    }
    return list;
  }

  std::vector<DenoiserSpec> denoisers(const YAML::Node& node) const {
    if (!node.IsSequence() || node.size() == 0) wrong(node, "denoisers must be a list of roles, from the noisiest");
    std::vector<DenoiserSpec> list;
    for (const auto& item : node) {
      check_fields(item, "a denoiser", {"role", "above"});
      DenoiserSpec spec{text(need(item, "role", "a denoiser"), "role")};
      set(item, "above", spec.above, 0, 1);
      if (!list.empty() && spec.above >= list.back().above)
        wrong(item, "each denoiser begins at less noise than the one before it");
      list.push_back(spec);
    }
    if (list.back().above != 0) wrong(node, "the last denoiser must reach down to no noise: leave its `above` out");
    return list;
  }

  NoiseScheduleSpec noise_schedule(const YAML::Node& node, Objective objective) const {
    check_fields(node, "noise_schedule", {"kind", "beta_start", "beta_end", "steps", "zero_terminal_snr"});
    NoiseScheduleSpec out;
    out.kind = choice(need(node, "kind", "noise_schedule"), "noise_schedule kind", {"scaled_linear", "linear"});
    constexpr double least = std::numeric_limits<double>::min(), below_one = 1 - 1e-9;
    set_needed(node, "beta_start", "noise_schedule", out.beta_start, least, below_one);
    set_needed(node, "beta_end", "noise_schedule", out.beta_end, out.beta_start, below_one);
    set(node, "steps", out.steps, 2, 1e6);
    set(node, "zero_terminal_snr", out.zero_terminal_snr);
    if (out.zero_terminal_snr && objective == Objective::epsilon)
      wrong(node["zero_terminal_snr"],
            "zero_terminal_snr needs objective v_prediction: where nothing but noise is left, the noise says nothing "
            "about the picture");
    return out;
  }

  ResolutionShift resolution_shift(const YAML::Node& node) const {
    check_fields(node, "resolution_shift", {"base_tokens", "base", "max_tokens", "max"});
    ResolutionShift out;
    set_needed(node, "base_tokens", "resolution_shift", out.base_tokens, 0, many);
    set_needed(node, "base", "resolution_shift", out.base, -100, 100);
    set_needed(node, "max_tokens", "resolution_shift", out.max_tokens, out.base_tokens + 1, many);
    set_needed(node, "max", "resolution_shift", out.max, -100, 100);
    return out;
  }

  TimestepSpec timestep(const YAML::Node& node, Objective objective) const {
    check_fields(node, "timestep", {"type", "shift", "weighting", "resolution_shift"});
    TimestepSpec out;
    out.type = choice(need(node, "type", "timestep"), "timestep type",
                      {"uniform", "linear", "sigmoid", "logit_normal", "mode", "cosmap", "shift", "resolution_shift"});
    set(node, "shift", out.shift, std::numeric_limits<double>::min(), 100);
    if (node["weighting"])
      out.weighting = choice(node["weighting"], "timestep weighting", {"none", "sigma_sqrt", "cosmap"});
    if (const YAML::Node shift = node["resolution_shift"]) out.resolution_shift = resolution_shift(shift);
    if (objective != Objective::flow && (out.weighting != "none" || out.resolution_shift))
      wrong(node, "weighting and resolution_shift belong to flow models");
    if (out.type == "resolution_shift" && !out.resolution_shift)
      wrong(node, "type resolution_shift needs the field `resolution_shift`");
    return out;
  }

  ScheduleSpec schedule(const YAML::Node& node, const Recipe& recipe) const {
    const bool flow = recipe.objective == Objective::flow;
    const std::string kind = choice(need(node, "kind", "schedule"), "schedule kind", {"flow", "discrete"});
    if ((kind == "flow") != flow)
      wrong(node, fmt::format("schedule kind {} does not fit objective {}", kind, objective_name(recipe.objective)));
    ScheduleSpec out;
    if (flow) {
      check_fields(node, "a flow schedule", {"kind", "dynamic", "shift", "shift_twice"});
      set(node, "dynamic", out.dynamic);
      set(node, "shift", out.shift, std::numeric_limits<double>::min(), 100);
      set(node, "shift_twice", out.shift_twice);
      if (out.dynamic && !recipe.timestep.resolution_shift)
        wrong(node["dynamic"], "dynamic: true needs timestep.resolution_shift");
      if (out.dynamic && out.shift_twice) wrong(node["shift_twice"], "shift_twice does not go with dynamic: true");
      return out;
    }
    check_fields(node, "a discrete schedule", {"kind", "spacing", "offset", "set_alpha_to_one"});
    const std::string spacing = choice(need(node, "spacing", "schedule"), "spacing", {"leading", "trailing"});
    out.spacing = spacing == "leading" ? ScheduleSpec::Spacing::leading : ScheduleSpec::Spacing::trailing;
    set(node, "offset", out.offset, 0, static_cast<double>(recipe.noise_schedule.steps - 1));
    if (out.offset != 0 && spacing == "trailing") wrong(node["offset"], "offset belongs to leading spacing");
    set(node, "set_alpha_to_one", out.set_alpha_to_one);
    return out;
  }

  SkipLayerGuidance skip_layer_guidance(const YAML::Node& node) const {
    check_fields(node, "skip_layer_guidance", {"layers", "scale", "start", "end"});
    SkipLayerGuidance out;
    const YAML::Node layers = need(node, "layers", "skip_layer_guidance");
    if (!layers.IsSequence() || layers.size() == 0) wrong(layers, "layers must be a list of block numbers");
    for (const auto& item : layers) {
      int64_t layer = -1;
      if (!YAML::convert<int64_t>::decode(item, layer) || layer < 0) wrong(item, "a layer must be a block's number");
      out.layers.push_back(layer);
    }
    set_needed(node, "scale", "skip_layer_guidance", out.scale, 0, 100);
    set(node, "start", out.start, 0, 1);
    set(node, "end", out.end, out.start, 1);
    return out;
  }

  SamplingSpec sampling(const YAML::Node& node, const Recipe& recipe) const {
    check_fields(node, "sampling", {"sampler", "steps", "guidance", "schedule", "skip_layer_guidance"});
    SamplingSpec out;
    out.sampler = text(need(node, "sampler", "sampling"), "sampler");
    set_needed(node, "steps", "sampling", out.steps, 1, 1000);
    set(node, "guidance", out.guidance, 0, 100);
    out.schedule = schedule(need(node, "schedule", "sampling"), recipe);
    if (const YAML::Node skip = node["skip_layer_guidance"]) {
      if (recipe.guided()) wrong(skip, "skip_layer_guidance does not go with an input that is given the guidance");
      out.skip_layer_guidance = skip_layer_guidance(skip);
    }
    return out;
  }

  void read_lora(const YAML::Node& node, Recipe& out) const {
    check_fields(node, "lora", {"targets", "conv_targets", "text_targets"});
    out.lora_targets = patterns(need(node, "targets", "lora"), "lora.targets");
    if (node["conv_targets"]) out.lora_conv_targets = patterns(node["conv_targets"], "lora.conv_targets");
    for (const auto& item : node["text_targets"]) {
      const std::string encoder = text(item.first, "an encoder of lora.text_targets");
      if (!out.tokenizers.contains(encoder))
        wrong(item.first, fmt::format("lora.text_targets: `{}` has no tokenizer, so it is no text encoder", encoder));
      out.lora_text_targets[encoder] = patterns(item.second, "lora.text_targets");
    }
  }

  const std::string& plugin_;
};

}  // namespace

Recipe Recipe::parse(const std::string& yaml, const std::string& plugin) {
  const RecipeReader reader(plugin);
  try {
    return reader.read(YAML::Load(yaml));
  } catch (const YAML::Exception& e) {
    reader.wrong(e.mark, e.msg);
  }
}

}  // namespace lh
