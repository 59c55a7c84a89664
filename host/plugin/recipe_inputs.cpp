// The `inputs` of a recipe: every input of the denoiser's graph but its latents, and what it is given.
#include <fmt/core.h>

#include <algorithm>

#include "config/scalar.h"
#include "plugin/recipe_parts.h"

namespace lh {
namespace {

using yaml::Strict;
using Source = InputSpec::Source;

// "time.end" is the one source of its kind: the end of a step of sampling.
constexpr const char* time_end_key = "end";

struct SourceName {
  std::string_view name;
  Source source;
  bool dotted;  // "conditioner.text"
};
constexpr SourceName source_names[] = {
    {"conditioner", Source::conditioner, true},
    {"mask", Source::mask, true},
    {"lengths", Source::lengths, true},
    {"time", Source::time, false},
    {"time", Source::time, true},
    {"sigma", Source::sigma, false},
    {"log_snr", Source::log_snr, false},
    {"guidance", Source::guidance, false},
    {"sizes", Source::sizes, false},
    {"image", Source::image, true},
    {"inpaint", Source::inpaint, true},
    {"first_frame", Source::first_frame, true},
    {"given", Source::given, true},
    {"constant", Source::constant, false},
};

void read_source(const Strict& in, const yaml::Node& node, InputSpec& out) {
  const std::string source = in.text(node, "source");
  const size_t dot = source.find('.');
  const bool dotted = dot != std::string::npos && dot + 1 < source.size();
  const auto known = std::ranges::find_if(source_names, [&](const SourceName& s) {
    return s.name == std::string_view(source).substr(0, dot) && s.dotted == dotted;
  });
  if (known == std::end(source_names)) {
    std::string list;
    for (const SourceName& s : source_names)
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", s.name, s.dotted ? ".<name>" : "");
    in.wrong(node, fmt::format("source `{}` is unknown; known: {}", source, list));
  }
  out.source = known->source;
  if (dotted) out.of = source.substr(dot + 1);
}

std::string read_mask(const Strict& in, const yaml::Node& node) {
  constexpr std::string_view conditioner = "conditioner.";
  const std::string output = in.text(node, "mask");
  if (!output.starts_with(conditioner) || output.size() == conditioner.size())
    in.wrong(node, "mask must be an output of the conditioner, such as conditioner.text_mask");
  return output.substr(conditioner.size());
}

std::vector<InputSpec::Number> read_numbers(const Strict& in, const yaml::Node& node) {
  std::vector<InputSpec::Number> list;
  for (const yaml::Node& item : in.list(node, "values")) {
    if (const auto number = yaml::number_of(item))
      list.push_back({"", *number});
    else
      list.push_back({in.choice(item, "value",
                                {"original_height", "original_width", "crop_top", "crop_left", "height", "width"})});
  }
  if (list.empty()) in.wrong(node, "values must be a list of names and numbers, found an empty one");
  return list;
}

InputSpec read_input(const Strict& in, const std::string& name, const yaml::Node& node) {
  const std::string what = fmt::format("input `{}`", name);
  (void)in.entries(node, what);
  InputSpec out;
  read_source(in, in.need(node, "source", what), out);
  switch (out.source) {
    case Source::conditioner:
      in.check_fields(node, what, {"source", "mask", "round"});
      if (const yaml::Node* mask = node.find("mask")) out.mask = read_mask(in, *mask);
      in.set(node, "round", out.round, {.low = 1, .high = 4096});
      if (out.round > 1 && out.mask.empty()) in.wrong(*node.find("round"), "round goes with a mask");
      break;
    case Source::time:
    case Source::sigma:
    case Source::log_snr:
      in.check_fields(node, what, {"source", "per"});
      if (!out.of.empty() && out.of != time_end_key)
        in.wrong(node, fmt::format("source `time.{}` is unknown; known: time, time.{}", out.of, time_end_key));
      if (const yaml::Node* per = node.find("per"))
        out.per_token = in.choice(*per, "per", {"sample", "token"}) == "token";
      break;
    case Source::sizes:
      in.check_fields(node, what, {"source", "values"});
      out.numbers = read_numbers(in, in.need(node, "values", what));
      break;
    case Source::image: {
      in.check_fields(node, what, {"source", "as", "optional"});
      const std::string as = in.choice(in.need(node, "as", what), "as", {"latents", "pixels", "mask"});
      out.image = as == "latents"  ? InputSpec::Image::latents
                  : as == "pixels" ? InputSpec::Image::pixels
                                   : InputSpec::Image::mask;
      in.set(node, "optional", out.optional);
      break;
    }
    case Source::first_frame:
      in.check_fields(node, what, {"source", "as", "optional"});
      if (const yaml::Node* as = node.find("as")) out.starts = in.choice(*as, "as", {"clip", "start"}) == "start";
      in.set(node, "optional", out.optional);
      break;
    case Source::inpaint:
      in.check_fields(node, what, {"source"});
      if (out.of != inpaint_mask_key && out.of != inpaint_image_key)
        in.wrong(node, fmt::format("source `inpaint.{}` is unknown; known: inpaint.{}, inpaint.{}", out.of,
                                   inpaint_image_key, inpaint_mask_key));
      break;
    case Source::constant:
      in.check_fields(node, what, {"source", "value"});
      out.value = in.number(in.need(node, "value", what), "value");
      break;
    case Source::guidance:
      in.check_fields(node, what, {"source", "none"});
      if (const yaml::Node* none = node.find("none")) {
        out.value = in.number(*none, "none");
        if (out.value >= 0) in.wrong(*none, "none must be below 0, where no strength is");
      }
      break;
    default: in.check_fields(node, what, {"source"});
  }
  return out;
}

}  // namespace

std::string InputSpec::text() const {
  const auto named = std::ranges::find_if(
      source_names, [&](const SourceName& s) { return s.source == source && s.dotted == !of.empty(); });
  return named->dotted ? fmt::format("{}.{}", named->name, of) : std::string(named->name);
}

std::map<std::string, InputSpec> read_inputs(const Strict& in, const yaml::Node& node) {
  std::map<std::string, InputSpec> inputs;
  for (const auto& [name, value] : in.entries(node, "inputs")) {
    if (name.text == "latents") in.wrong(name, "`latents` always are the noisy latents; leave it out");
    inputs.emplace(name.text, read_input(in, name.text, value));
  }
  for (const auto& [name, value] : node.entries) {
    InputSpec& spec = inputs.at(name.text);
    if (spec.source == Source::given) {
      const auto shown = std::ranges::find_if(inputs, [&](const auto& other) {
        return other.second.source == Source::first_frame && other.second.of == spec.of;
      });
      if (shown == inputs.end())
        in.wrong(value, fmt::format("`{}`: expected an input first_frame.{} beside it", spec.text(), spec.of));
      spec.optional = shown->second.optional;
    }
    if (spec.source != Source::mask && spec.source != Source::lengths) continue;
    const auto of = inputs.find(spec.of);
    if (of == inputs.end() || of->second.source != Source::conditioner || of->second.mask.empty())
      in.wrong(value, fmt::format("`{}`: expected an input from the conditioner that has a mask", spec.text()));
  }
  return inputs;
}

namespace {

// "image.control", "first_frame.control"
void read_picture_source(const Strict& in, const yaml::Node& node, PictureSpec& out) {
  const std::string text = in.text(node, "source");
  const size_t dot = text.find('.');
  const std::string_view kind = std::string_view(text).substr(0, dot);
  if ((kind != "image" && kind != "first_frame") || dot == std::string::npos || dot + 1 == text.size())
    in.wrong(node, fmt::format("source must be image.<key> or first_frame.<key>, found `{}`", text));
  out.first_frame = kind == "first_frame";
  out.of = text.substr(dot + 1);
}

PictureSpec read_picture(const Strict& in, const std::string& name, const yaml::Node& node,
                         const std::map<std::string, TokenizerSpec>& tokenizers) {
  const std::string what = fmt::format("picture `{}`", name);
  in.check_fields(node, what, {"source", "encoder", "area", "multiple", "side", "optional"});
  PictureSpec out;
  read_picture_source(in, in.need(node, "source", what), out);
  const yaml::Node& encoder = in.need(node, "encoder", what);
  out.encoder = in.text(encoder, "encoder");
  const auto reader = tokenizers.find(out.encoder);
  if (reader != tokenizers.end() && reader->second.picture.empty())
    in.wrong(encoder, fmt::format("`{}` has no tokenizer with pictures in its template", out.encoder));
  if (const yaml::Node* side = node.find("side")) {
    if (reader != tokenizers.end())
      in.wrong(*side,
               "side is for encoders without a tokenizer; where a picture has places among tokens, area and "
               "multiple say how many");
    if (node.find("area") != nullptr || node.find("multiple") != nullptr)
      in.wrong(*side, "side takes the place of area and multiple: leave them out");
    out.side = in.integer(*side, "side", {.low = 1, .high = 4096});
  } else {
    out.area = in.integer(in.need(node, "area", what), "area", {.low = 1, .high = 1 << 24});
    out.multiple = in.integer(in.need(node, "multiple", what), "multiple", {.low = 1, .high = 1024});
  }
  const yaml::Node* optional = node.find("optional");
  if (optional != nullptr && out.first_frame)
    in.wrong(*optional, "every clip begins with a frame: a picture of it is not optional");
  in.set(node, "optional", out.optional);
  return out;
}

}  // namespace

std::map<std::string, PictureSpec> read_pictures(const Strict& in, const yaml::Node& node,
                                                 const std::map<std::string, TokenizerSpec>& tokenizers) {
  std::map<std::string, PictureSpec> pictures;
  for (const auto& [name, value] : in.entries(node, "pictures"))
    pictures.emplace(name.text, read_picture(in, name.text, value, tokenizers));
  return pictures;
}

}  // namespace lh
