// A small model whose parts do not fit each other in the way that LORA_TEST_MISFIT names: recipe and graphs disagree,
// or one of them says what this host does not run. Without that variable it is sound.
// "constant": sound as well, with another constant in its encoder. "images": sound as well, and given further images:
// control [B, h, w, 4], photo [B, H, W, 3] and area [B, h, w, 1]. "inpaint": the same, and given what it is to paint:
// hole [B, h, w, 64] and seen [B, h, w, 4]. "picture": the same, and an encoder that only sees: look [1, 16, 16, 3].
// "pixels": sound as well, and its latents are the picture itself, [B, H, W, 3]; "pixels_inpaint": both.
//
//   conditioner  enc.input_ids [B, L] -> text [B, L, 8], text_mask [B, L], pooled [B, 8]; look -> glance [B, 4]
//   denoiser     latents [B, h, w, 4], text, text_mask, pooled, size_ids [B, 2], time [B] -> output
//   vae          one convolution down by 8, one linear layer up again
#include <cstdlib>
#include <string>

#include "lora_host/lora_host.hpp"

namespace {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

bool misfit(const char* name) {
  const char* asked = std::getenv("LORA_TEST_MISFIT");
  return asked != nullptr && std::string(asked) == name;
}
bool sees() {
  return misfit("picture") || misfit("picture_encoder") || misfit("picture_size") || misfit("picture_of_videos");
}

bool of_pixels() { return misfit("pixels") || misfit("pixels_decoded") || misfit("pixels_inpaint"); }
int64_t channels() { return of_pixels() ? 3 : 4; }
bool inpaints() { return misfit("inpaint") || misfit("pixels_inpaint"); }

constexpr const char* checkpoint_yaml = R"(
components:
  denoiser: {config: name_or_path, prefixes: [""], marker: w.weight, lora: {kohya: lora_unet_}}
  enc: {config: enc_path, help: Text encoder., prefixes: ["enc."], marker: table.weight}
  vae: {config: vae_path, help: Autoencoder., prefixes: ["vae."], marker: down.weight}
  eye: {config: eye_path, help: Image encoder., prefixes: ["eye.", ""], marker: look.weight}
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string recipe_text() {
  std::string text = R"(family: misfits
objective: flow
latents: {channels: 4, downscale: 8, multiple: 2}
inputs:
  text: {source: conditioner.text, mask: conditioner.text_mask, round: 4}
  text_mask: {source: mask.text}
  pooled: {source: conditioner.pooled}
  size_ids: {source: sizes, values: [height, width]}
  time: {source: time}
tokenizers: {enc: {kind: t5, length: 8}}
timestep: {type: uniform}
sampling: {sampler: euler, steps: 2, schedule: {kind: flow}}
lora: {targets: ["w"]}
)";
  if (of_pixels()) text = replaced(text, "channels: 4, downscale: 8", "pixels: true");
  if (misfit("guidance_unasked")) return replaced(text, "inputs:\n", "inputs:\n  guidance: {source: guidance}\n");
  if (misfit("source_missing")) return replaced(text, "  size_ids: {source: sizes, values: [height, width]}\n", "");
  if (misfit("output_missing")) return replaced(text, "conditioner.pooled", "conditioner.summary");
  if (misfit("mask_missing")) return replaced(text, "conditioner.text_mask", "conditioner.there");
  if (misfit("numbers")) return replaced(text, "[height, width]", "[height, width, crop_top]");
  if (misfit("downscale")) return replaced(text, "downscale: 8", "downscale: 16");
  if (misfit("channels")) return replaced(text, "channels: 4", "channels: 16");
  if (misfit("tokenizer")) return replaced(text, "{enc: {kind: t5", "{words: {kind: t5");
  if (misfit("time_axis")) return replaced(text, "downscale: 8", "axes: [time, height, width], downscale: [1, 8, 8]");
  if (misfit("denoisers"))
    return replaced(text, "timestep:", "denoisers: [{role: denoiser, above: 0.9}, {role: conditioner}]\ntimestep:");
  if (misfit("other_latents"))
    return replaced(text, "inputs:", "other_latents: {sound: {channels: 2, downscale: 4}}\ninputs:");
  if (misfit("images") || misfit("image_size"))
    return replaced(text, "inputs:\n", R"(inputs:
  control: {source: image.control, as: latents}
  photo: {source: image.control, as: pixels}
  area: {source: image.mask, as: mask}
)");
  if (inpaints())
    return replaced(text, "inputs:\n", R"(inputs:
  hole: {source: inpaint.mask}
  seen: {source: inpaint.image}
)");
  if (sees()) {
    text = replaced(text, "inputs:\n", "inputs:\n  glance: {source: conditioner.glance}\n");
    text += "pictures: {look: {source: image.control, encoder: eye, side: 16}}\n";
  }
  if (misfit("picture_encoder")) return replaced(text, "encoder: eye", "encoder: lens");
  if (misfit("picture_of_videos"))
    return replaced(text, "downscale: 8", "axes: [time, height, width], downscale: [1, 8, 8]");
  if (misfit("targets")) return replaced(text, R"(["w"])", R"(["blocks.*"])");
  return text;
}

class Misfits : public lora_host::Model {
 public:
  explicit Misfits(const Weights&) : recipe_(recipe_text()) {}
  static int32_t probe(const Weights&) { return 100; }
  const char* recipe() const override { return recipe_.c_str(); }
  const char* role(uint32_t index) const override {
    constexpr const char* roles[] = {"denoiser", "conditioner", "vae.encode", "vae.decode"};
    return index < (of_pixels() && !misfit("pixels_decoded") ? 2 : 4) ? roles[index] : nullptr;
  }

  void build(Graph& g, std::string_view role, const lora_host::Sizes& sizes) const override {
    if (role == "denoiser") return denoiser(g, sizes);
    if (role == "conditioner") return conditioner(g, sizes);
    const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
    if (role == "vae.encode") {
      Value image = g.input("image", {batch, height, width, 3});
      Value moments = g.cast(g.conv2d(image, "vae:down", 8), LH_F32);
      if (!misfit("posterior")) g.output("posterior", moments);
      g.output("moments", moments);
      return;
    }
    Value x = g.linear(g.input("latents", {batch, height, width, 4}), "vae:up");  // [B, h, w, 192]
    x = g.permute(g.reshape(x, {batch, height, width, 8, 8, 3}), {0, 1, 3, 2, 4, 5});
    x = g.reshape(x, {batch, 8 * height, 8 * width, 3});
    g.output("image", misfit("image") ? g.slice(x, 3, 0, 1) : x);
  }

 private:
  void conditioner(Graph& g, const lora_host::Sizes& sizes) const {
    if (misfit("conditioner_throws")) throw Failure(LH_E_INTERNAL, "no encoder was written yet");
    const int64_t batch = sizes["batch"], length = sizes["enc.length"];
    Value ids = g.input("enc.input_ids", {batch, length}, misfit("ids_type") ? LH_F32 : LH_I32);
    if (misfit("ids_type")) ids = g.cast(ids, LH_I32);
    if (misfit("unknown_tokens")) (void)g.input("words.input_ids", {batch, length}, LH_I32);
    Value text = g.embedding(ids, "enc:table");  // [B, L, 8]
    text = g.mul(text, g.constant({1}, std::vector<float>{misfit("constant") ? 2.0f : 1.0f}));
    g.output("text", misfit("text_width") ? g.slice(text, 2, 0, 6) : text);
    g.output("pooled", g.reshape(g.mean(text, {1}), {batch, 8}));
    if (sees()) {
      const int64_t side = misfit("picture_size") ? 8 : sizes["look_height"];
      Value seen = g.mean(g.linear(g.input("look", {1, side, side, 3}), "eye:look"), {1, 2});
      g.output("glance", g.expand(g.reshape(seen, {1, 4}), {batch, 4}));
    }
    Value one = g.constant({1, length}, std::vector<int32_t>(static_cast<size_t>(length), 1));
    Value mask = g.expand(one, {batch, length});
    g.output("text_mask", misfit("mask_length") ? g.slice(mask, 1, 0, length - 1) : mask);
  }

  void denoiser(Graph& g, const lora_host::Sizes& sizes) const {
    const int64_t batch = sizes["batch"], length = sizes["text_length"];
    Value latents = g.input("latents", {batch, sizes["height"], sizes["width"], channels()});
    Value text = g.input("text", {batch, length, 8});
    (void)g.input("text_mask", {batch, length}, misfit("mask_type") ? LH_F32 : LH_I32);
    Value pooled = g.input("pooled", {batch, 8});
    Value size_ids = g.input("size_ids", {batch, 2}, LH_F32);
    Value time = g.input("time", {batch}, LH_F32);
    if (misfit("input_unknown")) (void)g.input("style", {batch, 4});
    Value said = g.add(g.reshape(g.mean(text, {1}), {batch, 8}), pooled);
    said =
        g.add(g.reshape(g.slice(said, 1, 0, channels()), {batch, 1, 1, channels()}), g.reshape(time, {batch, 1, 1, 1}));
    said = g.add(said, g.reshape(g.mean(size_ids, {1}), {batch, 1, 1, 1}));
    if (misfit("images") || misfit("image_size")) {
      const int64_t height = sizes["height"], width = sizes["width"], scale = misfit("image_size") ? 4 : 8;
      Value photo = g.input("photo", {batch, scale * height, scale * width, 3});
      latents = g.add(latents,
                      g.mul(g.input("control", {batch, height, width, 4}), g.input("area", {batch, height, width, 1})));
      said = g.add(said, g.reshape(g.mean(photo, {1, 2, 3}), {batch, 1, 1, 1}));
    }
    if (inpaints()) {
      const int64_t height = sizes["height"], width = sizes["width"], pixels = of_pixels() ? 1 : 64;
      latents = g.add(latents, g.mul(g.input("seen", {batch, height, width, channels()}),
                                     g.mean(g.input("hole", {batch, height, width, pixels}), {3})));
    }
    if (sees()) said = g.add(said, g.reshape(g.input("glance", {batch, 4}), {batch, 1, 1, 4}));
    Value out = g.add(g.linear(latents, "w"), said);
    if (misfit("output_channels")) out = g.concat({out, out}, -1);
    if (misfit("output_type")) out = g.cast(out, LH_I32);
    g.output(misfit("output_name") ? "velocity" : "output", out);
  }

  std::string recipe_;
};

constexpr lh_model misfits = lora_host::model<Misfits>("misfits", checkpoint_yaml);

}  // namespace

LORA_HOST_PLUGIN("misfits", "0.1.0", "MIT", {LH_MODEL_FACTORY, &misfits})
