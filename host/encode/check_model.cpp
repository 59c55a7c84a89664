// Builds every role at one small size and compares it with the recipe.
#include "encode/check_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "encode/denoiser_inputs.h"
#include "encode/latent_shape.h"
#include "encode/prompt.h"
#include "passes/adapt.h"

namespace lh {
namespace {

using Source = InputSpec::Source;

class ModelCheck {
 public:
  ModelCheck(const Model& model, DType compute) : model_(model), recipe_(model.recipe()), compute_(compute) {}

  void run() {
    supported();
    tokenizers();
    if (encoders_there()) conditioner();
    denoiser();
    if (recipe_.latents.pixels)
      no_vae();
    else if (model_.checkpoint().has("vae"))
      vae();
  }

 private:
  template <typename... Args>
  [[noreturn]] void wrong(const char* role, fmt::format_string<Args...> text, Args&&... args) const {
    fail(Code::plugin, "plugin '{}', role {}: {}", model_.id(), role, fmt::format(text, std::forward<Args>(args)...));
  }

  // What a recipe may say, but this host does not run.
  void supported() const {
    const auto refuse = [&](const std::string& what) {
      fail(Code::plugin, "plugin '{}': {}, which this version of lora-host neither trains nor samples", model_.id(),
           what);
    };
    const auto sees_images = [](const auto& input) {
      return input.second.source == Source::image || input.second.source == Source::inpaint;
    };
    const auto shows_images = [](const auto& picture) { return !picture.second.first_frame; };
    if (recipe_.latents.time &&
        (std::ranges::any_of(recipe_.inputs, sees_images) || std::ranges::any_of(recipe_.pictures, shows_images)))
      refuse("a model of videos is given further images (recipe: latents.axes, inputs, pictures)");
    if (!recipe_.other_latents.empty()) refuse("several latents are diffused together (recipe: other_latents)");
    // One of them alone is trained on its share of the levels; the others are other files' business.
    if (std::ranges::count_if(recipe_.denoisers, [&](const auto& one) { return model_.has_role(one.role); }) > 1)
      refuse("several denoisers share the noise levels (recipe: denoisers)");
    if (recipe_.denoisers.size() > 1 && recipe_.objective != Objective::flow)
      refuse("denoisers share the noise levels of a model of discrete timesteps (recipe: denoisers)");
  }

  void tokenizers() const {
    for (const auto& [encoder, spec] : recipe_.tokenizers)
      if (model_.spec().component(encoder) == nullptr)
        fail(Code::plugin, "plugin '{}': recipe: tokenizers.{}: the checkpoint YAML has no component of this name",
             model_.id(), encoder);
    for (const auto& [name, spec] : recipe_.pictures)
      if (model_.spec().component(spec.encoder) == nullptr)
        fail(Code::plugin, "plugin '{}': recipe: pictures.{}.encoder: the checkpoint YAML has no component `{}`",
             model_.id(), name, spec.encoder);
  }

  bool encoders_there() const {
    const std::set<std::string> all = recipe_.encoders();
    return !all.empty() &&
           std::ranges::all_of(all, [&](const std::string& one) { return model_.checkpoint().has(one); });
  }

  static Desc input(const Graph& graph, const std::string& name) { return graph.desc(graph.inputs.at(name)); }

  void conditioner() {
    constexpr const char* role = "conditioner";
    Sizes sizes{{"batch", 1}};
    std::map<std::string, Desc> known;
    const PictureSizes pictures = picture_sizes(recipe_, "");
    for (const auto& [encoder, spec] : recipe_.tokenizers) {
      spec.add_sizes(encoder, sizes);
      const int64_t length = sizes[encoder + ".length"] = tokens_with_pictures(recipe_, encoder, pictures);
      known[encoder + ".input_ids"] = {DType::i32, {spec.rows, length}};
      if (spec.mask) known[encoder + ".attention_mask"] = known.at(encoder + ".input_ids");
    }
    Sizes at;  // where the template would have them is not looked up
    for (const auto& [name, size] : pictures) {
      if (recipe_.tokenizers.contains(recipe_.pictures.at(name).encoder)) at[name] = 1;
      known[name] = {DType::f32, {1, size.height, size.width, 3}};
    }
    for (const auto& [name, size] : picture_dimensions(pictures, at)) sizes[name] = size;
    const Graph graph = model_.build(role, sizes, compute_);
    for (const auto& [name, value] : graph.inputs) {
      const auto found = known.find(name);
      if (found == known.end())
        wrong(role, "asks for the input '{}'; the recipe's tokenizers and pictures give {}", name, list(known));
      if (graph.desc(value) != found->second && !(is_float(found->second.dtype) && is_float(graph.desc(value).dtype) &&
                                                  graph.desc(value).shape == found->second.shape))
        wrong(role, "input '{}' is {}, expected {} (recipe: tokenizers, pictures)", name, graph.desc(value).text(),
              found->second.text());
    }
    for (const auto& [name, spec] : recipe_.inputs) {
      if (spec.source != Source::conditioner) continue;
      const Desc output = output_of(graph, role, spec.of, "inputs." + name);
      if (output.shape.rank() < 2 || output.shape[0] != 1)
        wrong(role, "output '{}' is {}, expected [1, ...] for a batch of 1", spec.of, output.text());
      if (!spec.mask.empty()) {
        const Desc mask = output_of(graph, role, spec.mask, "inputs." + name + ".mask");
        if (mask.shape.rank() != 2 || output.shape.rank() < 3 || mask.shape[1] != output.shape[1])
          wrong(role, "mask '{}' is {} and '{}' is {}, expected [1, L] and [1, L, ...]", spec.mask, mask.text(),
                spec.of, output.text());
      }
      conditioning_.emplace(spec.of,
                            HostTensor(Desc{is_float(output.dtype) ? DType::f32 : output.dtype, output.shape}));
    }
  }

  Desc output_of(const Graph& graph, const char* role, const std::string& output, const std::string& field) const {
    const auto found = graph.outputs.find(output);
    if (found == graph.outputs.end())
      wrong(role, "has no output '{}' (recipe: {}); it gives {}", output, field, list(graph.outputs));
    return graph.desc(found->second);
  }

  void denoiser() {
    constexpr const char* role = "denoiser";
    const LatentSpec& spec_of = recipe_.latents;
    Sizes sizes = latent_sizes(spec_of, tried());
    sizes["batch"] = 1;
    for (const auto& [name, spec] : recipe_.inputs) {
      if (spec.source != Source::conditioner) continue;
      const auto known = conditioning_.find(spec.of);
      if (known == conditioning_.end())
        sizes[length_size(name)] = spec.round * 32;
      else if (known->second.desc.shape.rank() >= 3)
        sizes[length_size(name)] = spec.padded(known->second.desc.shape[1]);
    }
    const Graph graph = model_.build(role, sizes, compute_);
    for (const auto& [name, value] : graph.inputs)
      if (name != "latents" && !(name == sound && recipe_.sound) && !recipe_.inputs.contains(name))
        wrong(role, "asks for the input '{}', for which the recipe has no source (recipe: inputs)", name);
    for (const auto& [name, spec] : recipe_.inputs)
      if (!graph.inputs.contains(name))
        wrong(role, "does not ask for the input '{}' of the recipe ({}); it asks for {}", name, spec.text(),
              list(graph.inputs));
    const LoraTargets targets(recipe_.lora_targets);
    if (std::ranges::none_of(graph.params, [&](const auto& p) { return targets.contain(module_of(p.first)); }))
      fail(Code::plugin, "plugin '{}': recipe: lora.targets match no linear layer of the denoiser: {}", model_.id(),
           fmt::join(recipe_.lora_targets, " and "));
    const Shape latents = latent_shape(spec_of, sizes, 1, spec_of.channels);
    if (!graph.inputs.contains("latents")) wrong(role, "does not ask for the input 'latents'");
    if (const Desc given = input(graph, "latents"); !is_float(given.dtype) || given.shape.rank() != latents.rank())
      wrong(role, "input 'latents' is {}, expected [B, {}height, width, channels]", given.text(),
            spec_of.time ? "time, " : "");
    inputs(graph, sizes);
    const auto output = graph.outputs.find("output");
    if (output == graph.outputs.end()) wrong(role, "has no output 'output'; it gives {}", list(graph.outputs));
    if (const Desc& said = graph.desc(output->second); said.shape != latents || !is_float(said.dtype))
      wrong(role, "output 'output' is {}, expected a float {} like the latents (recipe: latents.channels)", said.text(),
            latents.text());
    if (const Desc given = input(graph, "latents"); given.shape != latents)
      wrong(role, "input 'latents' is {}, expected a float {} (recipe: latents.channels)", given.text(),
            latents.text());
    if (recipe_.sound) heard(graph, {1, sizes.at(sound), recipe_.sound->channels});
  }

  void heard(const Graph& graph, const Shape& rows) const {
    constexpr const char* role = "denoiser";
    const auto expect_rows = [&](const std::string& what, const Desc& found) {
      if (found.shape != rows || !is_float(found.dtype))
        wrong(role, "{} is {}, expected a float {} (recipe: sound)", what, found.text(), rows.text());
    };
    if (!graph.inputs.contains(sound)) wrong(role, "does not ask for the input 'sound', with the size of that name");
    expect_rows("input 'sound'", input(graph, sound));
    expect_rows("output 'sound_output'", output_of(graph, role, "sound_output", sound));
  }

  // The inputs as a run would make them, against what the graph asks for.
  void inputs(const Graph& graph, const Sizes& sizes) {
    const DenoiserInputs table(recipe_);
    NamedTensors conditioning = table.pattern(graph);
    for (const auto& [name, tensor] : conditioning_) conditioning.insert_or_assign(name, tensor);
    const InputRow row{&conditioning, {0.5, 0.5, 0.5f}, 1, {}, table.pattern_images(sizes)};
    for (const auto& [name, tensor] : table.batch({row}, sizes)) {
      const Desc asked = input(graph, name);
      const bool fits = asked.shape == tensor.desc.shape && is_float(asked.dtype) == is_float(tensor.desc.dtype);
      if (!fits)
        wrong("denoiser", "input '{}' is {}, but its source {} gives {} (recipe: inputs.{})", name, asked.text(),
              recipe_.inputs.at(name).text(), tensor.desc.text(), name);
    }
  }

  void no_vae() const {
    for (const char* role : {"vae.encode", "vae.decode"})
      if (model_.has_role(role))
        wrong(role, "latents are the picture itself, and have no VAE (recipe: latents.pixels)");
  }

  void vae() const {
    const LatentSpec& latents = recipe_.latents;
    Sizes pixels = pixel_sizes(latents, tried()), places = latent_sizes(latents, tried());
    pixels["batch"] = places["batch"] = 1;
    const Shape image = latent_shape(latents, pixels, 1, 3);
    const Graph encode = model_.build("vae.encode", pixels, compute_);
    expect(encode, "vae.encode", "image", image, "posterior", latent_shape(latents, places, 1, 2 * latents.channels));
    const Graph decode = model_.build("vae.decode", places, compute_);
    expect(decode, "vae.decode", "latents", latent_shape(latents, places, 1, latents.channels), "image", image);
  }

  // A small image, or a clip of two places of time.
  Bucket tried() const {
    const LatentSpec& latents = recipe_.latents;
    const int64_t side = 4 * latents.pixel_step();
    const int64_t frames = latents.time ? latents.frames(2) : 1;
    return {side, side, frames, recipe_.sound ? recipe_.sound->rows_of(frames) : 0};
  }

  void expect(const Graph& graph, const char* role, const char* in, const Shape& in_shape, const char* out,
              const Shape& out_shape) const {
    if (graph.inputs.size() != 1 || !graph.inputs.contains(in))
      wrong(role, "asks for {}, expected the input '{}' alone", list(graph.inputs), in);
    if (const Desc given = input(graph, in); given.shape != in_shape || !is_float(given.dtype))
      wrong(role, "input '{}' is {}, expected a float {} (recipe: latents)", in, given.text(), in_shape.text());
    if (const Desc given = output_of(graph, role, out, "latents"); given.shape != out_shape || !is_float(given.dtype))
      wrong(role, "output '{}' is {}, expected a float {} (recipe: latents.downscale, channels)", out, given.text(),
            out_shape.text());
  }

  template <typename Map>
  static std::string list(const Map& map) {
    std::vector<std::string> names;
    names.reserve(map.size());
    for (const auto& [name, value] : map) names.push_back(name);
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  }

  static constexpr const char* sound = "sound";
  const Model& model_;
  const Recipe& recipe_;
  DType compute_;
  NamedTensors conditioning_;  // outputs of the conditioner that inputs are bound to: shapes, no values
};

}  // namespace

void check_model(const Model& model, DType compute) { ModelCheck(model, compute).run(); }

}  // namespace lh
