// Strict YAML to Recipe; inputs and sampling have files of their own.
#include "plugin/recipe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "data/tokenizer_yaml.h"
#include "plugin/recipe_parts.h"

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
  const auto count = static_cast<double>(tokens);
  const double share = logarithmic ? std::log(count / base_tokens) / std::log(max_tokens / base_tokens)
                                   : (count - base_tokens) / (max_tokens - base_tokens);
  return base + (capped ? std::min(share, 1.0) : share) * (max - base);
}

namespace {

bool has_source(const Recipe& recipe, InputSpec::Source source) {
  return std::ranges::any_of(recipe.inputs, [&](const auto& input) { return input.second.source == source; });
}

}  // namespace

bool Recipe::guided() const { return has_source(*this, InputSpec::Source::guidance); }
bool Recipe::of_prompt(const std::string& input) const {
  const auto spec = inputs.find(input);
  return spec != inputs.end() && spec->second.of_prompt();
}
bool Recipe::inpaints() const { return has_source(*this, InputSpec::Source::inpaint); }
bool Recipe::shown_first_frames() const {
  return has_source(*this, InputSpec::Source::first_frame) ||
         std::ranges::any_of(pictures, [](const auto& picture) { return picture.second.first_frame; });
}

bool Recipe::starts_clips() const {
  return std::ranges::any_of(inputs, [](const auto& input) { return input.second.starts; });
}

std::set<std::string> Recipe::encoders() const {
  std::set<std::string> all;
  for (const auto& [encoder, spec] : tokenizers) all.insert(encoder);
  for (const auto& [input, spec] : pictures) all.insert(spec.encoder);
  return all;
}

void Recipe::keep_images(const std::set<std::string>& keys) {
  using Source = InputSpec::Source;
  const auto is_out = [&](const auto& item, std::set<std::string>& gone) {
    const bool out = item.second.optional && !keys.contains(item.second.of);
    if (out) gone.insert(item.second.of);
    return out;
  };
  std::erase_if(inputs, [&](const auto& item) {
    const bool of_samples = item.second.source == Source::first_frame || item.second.source == Source::given;
    if (of_samples && keys.contains(own_first_frame_key)) return false;
    return is_out(item, of_samples ? left_out_of_samples : left_out);
  });
  std::erase_if(pictures, [&](const auto& item) { return is_out(item, left_out); });
}

ImageKeys Recipe::image_keys() const {
  ImageKeys keys({}, inpaints(), left_out);
  const auto add = [&](const std::string& key, bool optional) {
    keys.needed.insert(key);
    if (optional) keys.chosen.insert(key);
  };
  for (const auto& [name, spec] : inputs)
    if (spec.source == InputSpec::Source::image) add(spec.of, spec.optional);
  for (const auto& [name, spec] : pictures)
    if (!spec.first_frame) add(spec.of, spec.optional);
  return keys;
}

ImageKeys Recipe::image_keys_of_samples() const {
  ImageKeys keys = image_keys();
  if (keys.inpaint) keys.needed.insert({inpaint_image_key, inpaint_mask_key});
  keys.inpaint = false;
  keys.possible.insert(left_out_of_samples.begin(), left_out_of_samples.end());
  for (const auto& [name, spec] : inputs)
    if (spec.source == InputSpec::Source::first_frame) (spec.optional ? keys.possible : keys.needed).insert(spec.of);
  for (const auto& [name, spec] : pictures)
    if (spec.first_frame) keys.needed.insert(spec.of);
  return keys;
}

LoraTargets::LoraTargets(const std::vector<std::string>& patterns) : patterns_(patterns.begin(), patterns.end()) {}

bool LoraTargets::contain(const std::string& module) const {
  return std::ranges::any_of(patterns_, [&](const Pattern& p) { return p.matches(module); });
}

namespace {

using yaml::Strict;

Objective read_objective(const Strict& in, const yaml::Node& node) {
  const std::string name = in.choice(node, "objective", {"flow", "epsilon", "v_prediction"});
  return name == "flow" ? Objective::flow : name == "epsilon" ? Objective::epsilon : Objective::v_prediction;
}

LatentSpec read_latents(const Strict& in, const yaml::Node& node) {
  constexpr Range scales{.low = 1, .high = 1024};
  in.check_fields(node, "latents", {"channels", "axes", "downscale", "multiple", "pixels"});
  LatentSpec out;
  in.set(node, "pixels", out.pixels);
  if (out.pixels) {
    for (const char* field : {"channels", "axes", "downscale"})
      if (const yaml::Node* given = node.find(field))
        in.wrong(*given, fmt::format("latents.{}: pixels of a picture have 3 channels and a place each: leave it out, "
                                     "or leave `pixels: true` out",
                                     field));
    out.channels = 3;
    out.downscale = 1;
    in.set(node, "multiple", out.multiple, scales);
    return out;
  }
  out.channels = in.integer(in.need(node, "channels", "latents"), "channels", {.low = 1, .high = 4096});
  in.set(node, "multiple", out.multiple, scales);
  std::vector<std::string> axes{"height", "width"};
  in.set(node, "axes", axes);
  out.time = axes == std::vector<std::string>{"time", "height", "width"};
  if (!out.time && axes != std::vector<std::string>{"height", "width"})
    in.wrong(*node.find("axes"), "axes must be [height, width] or [time, height, width]");
  const yaml::Node& downscale = in.need(node, "downscale", "latents");
  if (downscale.kind != yaml::Kind::list) {
    out.downscale = in.integer(downscale, "downscale", scales);
    return out;
  }
  const std::vector<int64_t> each = in.integers(downscale, "downscale", scales);
  if (each.size() != axes.size())
    in.wrong(downscale, fmt::format("downscale has {} numbers for {} axes", each.size(), axes.size()));
  if (each.back() != each[each.size() - 2]) in.wrong(downscale, "height and width must have the same downscale");
  out.downscale = each.back();
  if (out.time) out.time_downscale = each.front();
  return out;
}

SoundSpec read_sound(const Strict& in, const yaml::Node& node) {
  constexpr const char* where = "sound";
  constexpr Range rates{.low = 1, .high = 1e6};
  in.check_fields(node, where, {"channels", "rows", "rate", "output_rate", "frame_rate"});
  const auto whole = [&](const char* field, const Range& range) {
    return in.integer(in.need(node, field, where), field, range);
  };
  SoundSpec out{.channels = whole("channels", {.low = 1, .high = 4096}),
                .rows = whole("rows", rates),
                .rate = whole("rate", rates),
                .output_rate = whole("output_rate", rates)};
  out.frame_rate = in.number(in.need(node, "frame_rate", where), "frame_rate", {.low = 1, .high = 1000});
  if (out.rate % out.rows != 0)
    in.wrong(node, fmt::format("sound.rate: expected a multiple of rows, {}, found {}", out.rows, out.rate));
  return out;
}

std::vector<DenoiserSpec> read_denoisers(const Strict& in, const yaml::Node& node) {
  std::vector<DenoiserSpec> list;
  for (const yaml::Node& item : in.list(node, "denoisers")) {
    in.check_fields(item, "a denoiser", {"role", "above"});
    DenoiserSpec spec{in.text(in.need(item, "role", "a denoiser"), "role")};
    in.set(item, "above", spec.above, {.low = 0, .high = 1});
    if (!list.empty() && spec.above >= list.back().above)
      in.wrong(item, "each denoiser begins at less noise than the one before it");
    list.push_back(spec);
  }
  if (list.empty()) in.wrong(node, "denoisers must be a list of roles, from the noisiest; found an empty one");
  if (list.back().above != 0) in.wrong(node, "the last denoiser must reach down to no noise: leave its `above` out");
  return list;
}

std::vector<std::string> read_patterns(const Strict& in, const yaml::Node& node, const std::string& what) {
  std::vector<std::string> list;
  for (const yaml::Node& item : in.list(node, what)) {
    (void)in.pattern(item, what);
    list.push_back(item.text);
  }
  return list;
}

void read_lora(const Strict& in, const yaml::Node& node, Recipe& out) {
  in.check_fields(node, "lora", {"targets", "conv_targets", "text_targets"});
  out.lora_targets = read_patterns(in, in.need(node, "targets", "lora"), "lora.targets");
  if (const yaml::Node* targets = node.find("conv_targets"))
    out.lora_conv_targets = read_patterns(in, *targets, "lora.conv_targets");
  if (const yaml::Node* encoders = node.find("text_targets"))
    for (const auto& [encoder, targets] : in.entries(*encoders, "lora.text_targets")) {
      if (!out.tokenizers.contains(encoder.text))
        in.wrong(encoder,
                 fmt::format("lora.text_targets: `{}` has no tokenizer, so it is no text encoder", encoder.text));
      out.lora_text_targets[encoder.text] = read_patterns(in, targets, "lora.text_targets");
    }
}

}  // namespace

Recipe Recipe::parse(const std::string& yaml, const std::string& plugin) {
  const Strict in(fmt::format("plugin {}: recipe", plugin), Code::plugin);
  const std::string where = "the recipe";
  const yaml::Node root = in.parse(yaml);
  in.check_fields(root, where,
                  {"family", "variant", "objective", "latents", "other_latents", "sound", "inputs", "pictures",
                   "denoisers", "tokenizers", "noise", "noise_schedule", "timestep", "sampling", "lora", "metadata"});
  Recipe out;
  out.family = in.text(in.need(root, "family", where), "family");
  in.set(root, "variant", out.variant);
  const yaml::Node& objective = in.need(root, "objective", where);
  out.objective = read_objective(in, objective);
  out.latents = read_latents(in, in.need(root, "latents", where));
  if (const yaml::Node* sound = root.find("sound")) {
    if (!out.latents.time) in.wrong(*sound, "sound: of a model of images (latents.axes): leave it out");
    out.sound = read_sound(in, *sound);
  }
  if (const yaml::Node* others = root.find("other_latents"))
    for (const auto& [input, node] : in.entries(*others, "other_latents"))
      out.other_latents[input.text] = read_latents(in, node);
  if (const yaml::Node* tokenizers = root.find("tokenizers"))
    for (const auto& [encoder, node] : in.entries(*tokenizers, "tokenizers"))
      out.tokenizers[encoder.text] = read_tokenizer_spec(in, node);
  out.inputs = read_inputs(in, in.need(root, "inputs", where));
  for (const auto& [name, spec] : out.inputs)
    if (spec.source == InputSpec::Source::first_frame && !out.latents.time)
      in.wrong(*root.find("inputs")->find(name), fmt::format("`{}`: latents have no axis of time", spec.text()));
  if (const yaml::Node* pictures = root.find("pictures")) {
    out.pictures = read_pictures(in, *pictures, out.tokenizers);
    for (const auto& [name, spec] : out.pictures)
      if (spec.first_frame && !out.latents.time)
        in.wrong(*pictures->find(name), fmt::format("`first_frame.{}`: latents have no axis of time", spec.of));
  }
  if (const yaml::Node* list = root.find("denoisers")) out.denoisers = read_denoisers(in, *list);
  out.timestep = read_timestep(in, in.need(root, "timestep", where), out.objective);
  if (const yaml::Node* noise = root.find("noise")) {
    if (out.objective != Objective::flow)
      in.wrong(*noise, "noise belongs to flow models; others have a noise_schedule");
    out.noise = read_noise(in, *noise);
  }
  if (const yaml::Node* schedule = root.find("noise_schedule")) {
    if (out.objective == Objective::flow)
      in.wrong(*schedule, "noise_schedule belongs to epsilon and v_prediction models");
    out.noise_schedule = read_noise_schedule(in, *schedule, out.objective);
  } else if (out.objective != Objective::flow) {
    in.wrong(objective, fmt::format("objective {} needs a noise_schedule", objective_name(out.objective)));
  }
  out.sampling = read_sampling(in, in.need(root, "sampling", where), out);
  read_lora(in, in.need(root, "lora", where), out);
  for (const auto& [name, picture] : out.pictures)
    if (out.lora_text_targets.contains(picture.encoder))
      in.wrong(*root.find("lora"), fmt::format("lora.text_targets: `{}` is shown pictures, and such an encoder is not "
                                               "trained",
                                               picture.encoder));
  if (const yaml::Node* metadata = root.find("metadata"))
    for (const auto& [key, text] : in.entries(*metadata, "metadata"))
      out.metadata[key.text] = in.text(text, "metadata");
  return out;
}

}  // namespace lh
