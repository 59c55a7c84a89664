// The autoencoder of HunyuanVideo 1.5 beyond its golden cases: names in files, refusals, lengths of videos, and what
// long ones take of memory.
#include <gmock/gmock.h>

#include <set>

#include "run/plan.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/paths.h"

namespace lh::test::hunyuan_video_vae_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "hunyuan_video";
constexpr int64_t z = 4;

const std::vector<Given>& weights() {
  static const std::vector<Given> all = golden_weights("vae_hunyuan_video_encode");
  return all;
}

// The autoencoder alone, from a file of these tensors.
Model opened(const fs::path& file, const std::vector<Given>& tensors) {
  write_file(file, tensors);
  ModelConfig config;
  config.given["vae_path"] = {file};
  return {built_plugins(), config, plugin};
}

TEST(HunyuanVideoVae, FilesWithOtherNamesAreTheSame) {
  const TempDir dir;
  const ComponentSpec spec = *spec_of(plugin).component("vae");
  const Model want = opened(dir / "native.safetensors", weights());
  std::vector<Given> prefixed, diffusers;
  for (const Given& t : weights()) {
    prefixed.push_back({"vae." + t.name, t.tensor});
    for (const Given& part : in_diffusers(spec, t, weights())) diffusers.push_back(part);
  }
  EXPECT_EQ(diffusers.size(), weights().size());
  expect_same(opened(dir / "prefixed.safetensors", prefixed).checkpoint(), want.checkpoint());
  expect_same(opened(dir / "diffusers.safetensors", diffusers).checkpoint(), want.checkpoint());
}

// ---- lengths

Graph encoder(const Model& model, int64_t frames) {
  return model.build("vae.encode", {{"batch", 1}, {"time", frames}, {"height", 32}, {"width", 48}}, DType::f32);
}
Graph decoder(const Model& model, int64_t time) {
  return model.build("vae.decode", {{"batch", 1}, {"time", time}, {"height", 2}, {"width", 3}}, DType::f32);
}

TEST(HunyuanVideoVae, FramesAreEncodedAndDecoded) {
  const TempDir dir;
  const Model model = opened(dir / "vae.safetensors", weights());
  for (const int64_t time : {1, 2, 5}) {
    const int64_t frames = 4 * (time - 1) + 1;
    const Graph in = model.build("vae.encode", {{"batch", 2}, {"time", frames}, {"height", 32}, {"width", 48}}, {});
    EXPECT_EQ(in.desc(in.inputs.at("image")).shape, (Shape{2, frames, 32, 48, 3}));
    EXPECT_EQ(in.desc(in.outputs.at("posterior")).shape, (Shape{2, time, 2, 3, 2 * z}));
    const Graph out = model.build("vae.decode", {{"batch", 2}, {"time", time}, {"height", 2}, {"width", 3}}, {});
    EXPECT_EQ(out.desc(out.inputs.at("latents")).shape, (Shape{2, time, 2, 3, z}));
    EXPECT_EQ(out.desc(out.outputs.at("image")).shape, (Shape{2, frames, 32, 48, 3}));
  }
  EXPECT_THAT(error_of([&] { (void)encoder(model, 4); }), HasSubstr("a video of 4 frames"));
}

// A video of which another one is the beginning has that one's latents in front, and the other way.
TEST(HunyuanVideoVae, NothingOfLaterFramesIsSeen) {
  const TempDir dir;
  const Model model = opened(dir / "vae.safetensors", weights());
  const auto expect_front = [](const HostTensor& of, const HostTensor& want) {
    HostTensor front(want.desc);
    std::ranges::copy(of.as<float>().first(front.as<float>().size()), front.as<float>().begin());
    EXPECT_LT(relative_error(front, want), 1e-6);
  };
  const HostTensor latents = output_of(model, encoder(model, 13), "moments");
  for (const int64_t frames : {1, 5, 9}) expect_front(latents, output_of(model, encoder(model, frames), "moments"));
  const HostTensor video = output_of(model, decoder(model, 4), "image");
  for (const int64_t time : {1, 2, 3}) expect_front(video, output_of(model, decoder(model, time), "image"));
}

// What goes through in chunks takes memory for one: with its length grow the video itself, a copy of it at most, and
// what attention sees.
TEST(HunyuanVideoVae, LongVideosTakeLittleMoreMemory) {
  const TempDir dir;
  const Model model = opened(dir / "vae.safetensors", weights());
  const auto arena = [&](const char* role, int64_t time, int64_t side) {
    const Graph graph =
        model.build(role, {{"batch", 1}, {"time", time}, {"height", side}, {"width", side}}, DType::bf16);
    std::set<Value> params;
    for (const auto& [name, value] : graph.params) params.insert(value);
    return plan_memory(graph, params).bytes;
  };
  const size_t further = Desc{DType::bf16, {60, 256, 256, 3}}.bytes();
  EXPECT_LT(arena("vae.encode", 121, 256), arena("vae.encode", 61, 256) + 2 * further);
  EXPECT_LT(arena("vae.decode", 31, 16), arena("vae.decode", 16, 16) + 2 * further);
}

// ---- what does not fit

struct Wrong {
  const char* tensor;
  Shape shape;  // none: it is missing
  const char* text;
};
const Wrong wrongs[] = {
    {"decoder.conv_in.conv.weight", {}, "missing tensor vae:decoder.conv_in.conv.weight"},
    {"encoder.conv_in.conv.weight",
     {8, 4, 3, 3, 3},
     "vae:encoder.conv_in.conv.weight: expected shape [*, 3, 3, 3, 3], found [8, 4, 3, 3, 3]"},
    {"encoder.conv_out.conv.weight",
     {9, 32, 3, 3, 3},
     "vae:encoder.conv_out.conv.weight: expected shape [8, 32, 3, 3, 3], found [9, 32, 3, 3, 3]"},
    {"encoder.down.2.block.1.conv1.conv.weight",
     {16, 8, 3, 3, 3},
     "vae:encoder.down.2.block.1.conv1.conv.weight: expected shape [16, 16, 3, 3, 3], found [16, 8, 3, 3, 3]"},
    {"encoder.down.2.downsample.conv.conv.weight",
     {5, 16, 3, 3, 3},
     "vae:encoder.down.2.downsample.conv.conv.weight: expected a quarter or an eighth of 32 rows, found 5"},
    {"encoder.down.2.downsample.conv.conv.weight",
     {8, 16, 3, 3, 3},
     "vae:encoder.down.*: expected 2 levels that resample time, found 1"},
    {"decoder.up.1.upsample.conv.conv.weight", {}, "missing tensor vae:decoder.up.1.upsample.conv.conv.weight"},
    {"decoder.up.1.upsample.conv.conv.weight",
     {96, 32, 3, 3, 3},
     "vae:decoder.up.1.upsample.conv.conv.weight: expected 4 or 8 times 16 rows, found 96"},
    {"decoder.up.4.block.0.norm1.gamma", {}, "vae:decoder.up.*: expected 5 levels, found 4"},
    {"decoder.conv_in.conv.weight",
     {30, 4, 3, 3, 3},
     "vae:decoder.conv_in.conv.weight: expected a multiple of 4 channels, found 30"},
};

TEST(HunyuanVideoVae, WrongTensorsAreNamed) {
  const TempDir dir;
  for (const Wrong& wrong : wrongs) {
    std::vector<Given> tensors;
    for (const Given& t : weights())
      if (t.name != wrong.tensor) tensors.push_back(t);
    if (wrong.shape.rank() > 0) tensors.push_back({wrong.tensor, counting(wrong.shape)});
    EXPECT_THAT(error_of([&] { (void)opened(dir / "vae.safetensors", tensors); }), HasSubstr(wrong.text));
  }
}

}  // namespace
}  // namespace lh::test::hunyuan_video_vae_test
