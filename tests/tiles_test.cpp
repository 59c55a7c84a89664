// Tiles: how they cover an image and blend, which ones are chosen, and the VAE in tiles against the VAE as a whole.
#include "encode/tiles.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/hash.h"
#include "data/read_cut.h"
#include "encode/latent_encoding.h"
#include "sample/sampling.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::tiles_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// ---- cutting and blending

struct Cut {
  int64_t length, largest, overlap;
};

std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts;
  for (int64_t length = 1; length <= 70; ++length)
    for (int64_t largest = 1; largest <= 30; ++largest)
      for (int64_t overlap = 0; 3 * overlap <= largest; ++overlap) cuts.push_back({length, largest, overlap});
  return cuts;
}

TEST(Tiles, CoverTheAxisInOrder) {
  for (const auto& [length, largest, overlap] : all_cuts()) {
    SCOPED_TRACE(fmt::format("{} in {} with {}", length, largest, overlap));
    const TileAxis axis = cut(length, largest, overlap);
    ASSERT_LE(axis.size, std::min(largest, length));
    ASSERT_EQ(axis.starts.front(), 0);
    ASSERT_EQ(axis.starts.back() + axis.size, length);
    const auto count = static_cast<int64_t>(axis.starts.size());
    if (count > 1) {
      ASSERT_LT((count - 1) * (largest - overlap) + overlap, length) << "fewer would do";
      ASSERT_LT(count * (axis.size - 1) - (count - 1) * overlap, length) << "smaller ones would do";
    }
    for (size_t i = 1; i < axis.starts.size(); ++i) {
      const int64_t shared = axis.starts[i - 1] + axis.size - axis.starts[i];
      ASSERT_GE(shared, overlap);
      ASSERT_LE(shared, overlap + 1);
      ASSERT_TRUE(i < 2 || axis.starts[i] >= axis.starts[i - 2] + axis.size) << "a place is in three tiles";
    }
  }
}

TEST(Tiles, WeightsAreAPartitionOfUnity) {
  for (const auto& [length, largest, overlap] : all_cuts())
    for (const int64_t factor : {1, 8}) {
      SCOPED_TRACE(fmt::format("{} in {} with {}, times {}", length, largest, overlap, factor));
      const TileAxis axis = cut(length, largest, overlap).times(factor);
      std::vector<float> sum(static_cast<size_t>(axis.length));
      for (size_t tile = 0; tile < axis.starts.size(); ++tile) {
        const std::vector<float> weights = axis.weights(tile);
        ASSERT_EQ(weights.size(), static_cast<size_t>(axis.size));
        for (size_t k = 0; k < weights.size(); ++k) {
          ASSERT_GT(weights[k], 0);
          sum[static_cast<size_t>(axis.starts[tile]) + k] += weights[k];
        }
      }
      for (const float s : sum) ASSERT_NEAR(s, 1, std::numeric_limits<float>::epsilon());
    }
}

TEST(Tiles, RampIsLinear) {
  const TileAxis axis = cut(12, 8, 2);
  EXPECT_THAT(axis.starts, ElementsAre(0, 5));
  EXPECT_THAT(axis.weights(0), ElementsAre(1, 1, 1, 1, 1, 0.75f, 0.25f));
  EXPECT_THAT(axis.weights(1), ElementsAre(0.25f, 0.75f, 1, 1, 1, 1, 1));
}

TEST(Tiles, OverlapOfMoreThanAThirdIsRefused) {
  EXPECT_THAT(error_of([] { cut(20, 8, 3); }), HasSubstr("at most by a third"));
}

HostTensor image(int64_t height, int64_t width, int64_t channels, float (*value)(int64_t y, int64_t x, int64_t c)) {
  HostTensor t(Desc{DType::f32, {1, height, width, channels}});
  size_t i = 0;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) t.as<float>()[i++] = value(y, x, c);
  return t;
}

const std::function<HostTensor(const HostTensor&)> same = [](const HostTensor& tile) { return tile; };

// Tiles of one image that agree where they overlap give the image again: w a + (1 - w) a, twice rounded each way.
TEST(Tiles, BlendGivesBackWhatTheTilesAgreeOn) {
  const HostTensor images[] = {
      image(50, 37, 3, [](int64_t, int64_t, int64_t) { return 0.7f; }),
      image(50, 37, 3, [](int64_t y, int64_t x, int64_t c) { return 0.3f * float(x) - 0.2f * float(y) + float(c); }),
      image(50, 37, 3, [](int64_t y, int64_t x, int64_t c) { return std::sin(float(37 * y + 11 * x + c)); })};
  const TileGrid grid{cut(50, 16, 4), cut(37, 16, 4)};
  for (const HostTensor& whole : images) {
    const HostTensor blended = in_tiles(whole, grid, grid, same);
    ASSERT_EQ(blended.desc, whole.desc);
    for (size_t i = 0; i < whole.as<float>().size(); ++i) {
      const float want = whole.as<float>()[i];
      ASSERT_NEAR(blended.as<float>()[i], want, 4 * std::numeric_limits<float>::epsilon() * std::abs(want)) << i;
    }
  }
}

// Where a place is in one tile only, nothing is rounded; where two meet, the step between them becomes a ramp.
TEST(Tiles, BlendOfTwoConstantsIsARamp) {
  const TileGrid grid{cut(1, 1, 0), cut(12, 8, 2)};
  float value = 0;
  const HostTensor blended =
      in_tiles(HostTensor(Desc{DType::f32, {1, 1, 12, 1}}), grid, grid, [&](const HostTensor& t) {
        HostTensor made(t.desc);
        std::ranges::fill(made.as<float>(), value++);
        return made;
      });
  const std::span<const float> row = blended.as<float>();
  EXPECT_THAT(std::vector<float>(row.begin(), row.end()), ElementsAre(0, 0, 0, 0, 0, 0.25f, 0.75f, 1, 1, 1, 1, 1));
}

TEST(Tiles, ResultMayBeFinerAndHaveOtherChannels) {
  const TileGrid grid{cut(20, 9, 3), cut(11, 9, 3)};
  const HostTensor source = image(20, 11, 1, [](int64_t y, int64_t x, int64_t) { return float(100 * y + x); });
  const HostTensor blended = in_tiles(source, grid, grid.times(2), [](const HostTensor& tile) {
    const Shape& s = tile.desc.shape;
    HostTensor made(Desc{DType::f32, {1, 2 * s[1], 2 * s[2], 2}});
    for (int64_t i = 0; i < made.desc.shape.numel(); ++i) {
      const int64_t x = i / 2 % (2 * s[2]), y = i / 2 / (2 * s[2]);
      made.as<float>()[static_cast<size_t>(i)] =
          tile.as<float>()[static_cast<size_t>(y / 2 * s[2] + x / 2)] * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    return made;
  });
  ASSERT_EQ(blended.desc.shape, (Shape{1, 40, 22, 2}));
  for (int64_t i = 0; i < blended.desc.shape.numel(); ++i) {
    const int64_t x = i / 2 % 22, y = i / 2 / 22;
    const float want = float(100 * (y / 2) + x / 2) * (i % 2 == 0 ? 1.0f : -1.0f);
    ASSERT_NEAR(blended.as<float>()[static_cast<size_t>(i)], want, 1e-6 * std::abs(want));
  }
}

TEST(Tiles, OneTileIsHandedThrough) {
  const TileGrid grid{cut(4, 9, 3), cut(5, 5, 1)};
  EXPECT_TRUE(grid.whole());
  // Not even -0 and NaN change, which adding would.
  const HostTensor source = image(4, 5, 1, [](int64_t y, int64_t, int64_t) { return y == 0 ? -0.0f : NAN; });
  EXPECT_EQ(in_tiles(source, grid, grid, same).data, source.data);
}

TEST(Tiles, ChoicesAreTheWholeAndThenSmaller) {
  const std::vector<TileGrid> choices = tile_choices(256, 128, 8, 0);  // 1024 x 2048 pixels
  ASSERT_EQ(choices.size(), 5u);
  EXPECT_TRUE(choices[0].whole());
  const int64_t sizes[] = {192, 128, 96, 64};  // 1536 to 512 pixels
  for (size_t i = 1; i < choices.size(); ++i) {
    const TileAxis &rows = choices[i].rows, &before = choices[i - 1].rows;
    EXPECT_LE(rows.size, sizes[i - 1]);
    EXPECT_LT(rows.size, before.size);
    for (size_t k = 1; k < rows.starts.size(); ++k)
      EXPECT_GE(rows.starts[k - 1] + rows.size - rows.starts[k], sizes[i - 1] / 8);
  }
  EXPECT_EQ(choices[2].columns.starts.size(), 1u);
  EXPECT_EQ(tile_choices(64, 64, 8, 0).size(), 1u) << "512 pixels are one tile in any case";

  const std::vector<TileGrid> clip = tile_choices(64, 64, 8, 0, 61);
  ASSERT_EQ(clip.size(), 3u) << "a clip's may be smaller: 384 and 256 pixels";
  EXPECT_LE(clip[1].rows.size, 48);
  EXPECT_LE(clip[2].rows.size, 32);
}

TEST(Tiles, AskedForSizeIsTheOnlyChoice) {
  const std::vector<TileGrid> small = tile_choices(32, 32, 8, 128);  // too small for 64 pixels: overlaps by a third
  ASSERT_EQ(small.size(), 1u);
  EXPECT_LE(small[0].rows.size, 16);
  EXPECT_GE(small[0].rows.size - small[0].rows.starts[1], 5);
  EXPECT_TRUE(tile_choices(32, 32, 8, 1024).at(0).whole());
  EXPECT_THAT(error_of([] { tile_choices(32, 32, 8, 63); }),
              AllOf(HasSubstr("model.vae_tile"), HasSubstr("63"), HasSubstr("64")));
}

// ---- the VAE of the small model

const fs::path source = source_dir();

ModelConfig toy() {
  ModelConfig config;
  config.name_or_path = toy_folder() / "flux_toy.safetensors";
  config.given["vae_path"] = {toy_folder() / "ae.safetensors"};
  return config;
}

constexpr int64_t plenty = int64_t{1} << 50;

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) sum += std::abs(static_cast<double>(a.rgb[i]) - b.rgb[i]);
  return sum / static_cast<double>(a.rgb.size());
}

class TiledVae : public ::testing::Test {
 protected:
  static constexpr int64_t side = 96, tile = 64;  // pixels
  TiledVae() : model(built_plugins(), toy(), ""), device(tested_device()) {
    cuts.push_back({open_image(source / "examples/demo/photos/cat_01.jpg"), {side, side}, false});
  }
  Vae vae(int64_t tile_pixels) { return {device, model, DType::f32, tile_pixels}; }
  // The mean of the encoder's posterior, as the decoder takes it.
  HostTensor latents(int64_t tile_pixels) {
    LatentEncoding encoding(vae(tile_pixels), plenty, {});
    encoding.prepare(cuts);
    return encoding.mean(cuts[0]);
  }
  Image decoded(int64_t tile_pixels, const HostTensor& latents) {
    Decoder decoder(vae(tile_pixels), vae(tile_pixels).fit(VaeRole::decode, {side, side}, {.limit = plenty}));
    EXPECT_EQ(decoder.plan().grid.whole(), tile_pixels == 0 || tile_pixels >= side);
    const DeviceMemory arena(device, decoder.plan().memory.arena, "test");
    decoder.bind(arena.data());
    return decoder.decode(latents).front();
  }
  Model model;
  Device device;
  std::vector<ImageCut> cuts;
};

// Normalization and attention of the VAE see a tile only, so that a tile differs everywhere, and by no bound on a
// single pixel. On average it must differ less than the VAE's image does from the photo: then tiles are the lesser
// loss. A tile at a wrong place would not pass: a photo moved by one latent place differs more.
TEST_F(TiledVae, DecodesAndEncodesAlmostAsWhole) {
  const HostTensor x = latents(0);
  const Image photo = read_cut(cuts[0]), whole = decoded(0, x);
  const double loss = mean_difference(whole, photo);
  Image moved = photo;
  const auto step = static_cast<std::ptrdiff_t>(3 * model.recipe().latents.downscale);
  std::ranges::rotate(moved.rgb, moved.rgb.begin() + step);
  ASSERT_GT(mean_difference(moved, photo), loss);

  const Image tiled = decoded(tile, x);
  EXPECT_LT(mean_difference(tiled, whole), loss);
  EXPECT_EQ(decoded(tile, x).rgb, tiled.rgb) << "twice the same";

  const HostTensor encoded = latents(tile);
  EXPECT_LT(mean_difference(decoded(0, encoded), whole), loss);
  EXPECT_EQ(latents(tile).data, encoded.data) << "twice the same";
}

// Asked for tiles that are as large as the image: the same bits as ever.
TEST_F(TiledVae, OneTileIsTheWhole) {
  const HostTensor x = latents(0);
  EXPECT_EQ(latents(side).data, x.data);
  EXPECT_EQ(decoded(side, x).rgb, decoded(0, x).rgb);
}

TEST_F(TiledVae, CacheKnowsItsTiles) {
  const TempDir dir;
  const auto missing = [&](int64_t tile_pixels) {
    return LatentEncoding(vae(tile_pixels), plenty, dir.path()).bytes_to_cache(cuts);
  };
  LatentEncoding(vae(tile), plenty, dir.path()).prepare(cuts);
  EXPECT_EQ(missing(tile), 0);
  EXPECT_EQ(missing(tile + 7), 0) << "less than a latent place more: the same tiles";
  EXPECT_GT(missing(0), 0);
  EXPECT_GT(missing(tile + 24), 0);
}

// Memory decides where no size is asked for.
TEST_F(TiledVae, LargestThatFitsIsTaken) {
  for (const VaeRole role : {VaeRole::encode, VaeRole::decode}) {
    const Vae free = vae(0);
    const auto choices = tile_choices(128, 256, 8, 0);  // 2048 x 1024 pixels
    ASSERT_EQ(choices.size(), 5u);
    VaeMemory before{.arena = plenty};
    for (const TileGrid& grid : choices) {
      const VaeMemory memory = free.plan(role, grid).memory;
      ASSERT_LT(memory.arena, before.arena);
      const int64_t needed = MemoryRoom{}.total(memory);
      EXPECT_EQ(free.fit(role, {2048, 1024}, {.limit = needed}).grid.rows.size, grid.rows.size);
      before = memory;
    }
    // Beside others; an arena that they have as well takes nothing more.
    const VaeMemory whole = free.plan(role, choices[0]).memory;
    const int64_t needed = MemoryRoom{}.total(whole);
    EXPECT_FALSE(free.fit(role, {2048, 1024}, {.limit = needed + 9, .taken = 10}).grid.whole());
    EXPECT_TRUE(free.fit(role, {2048, 1024}, {.limit = needed + 10, .taken = 10}).grid.whole());
    const MemoryRoom shared{.limit = needed, .arena = whole.arena, .workspace = whole.workspace};
    EXPECT_TRUE(free.fit(role, {2048, 1024}, shared).grid.whole());
    // Not even the smallest: it is given, and refused with the numbers.
    const MemoryRoom none{.limit = int64_t{3} << 20};
    const VaePlan smallest = free.fit(role, {2048, 1024}, none);
    EXPECT_EQ(smallest.grid.rows.size, choices.back().rows.size);
    EXPECT_THAT(error_of([&] { smallest.require(none); }),
                AllOf(HasSubstr(role == VaeRole::encode ? "to encode 2048 x 1024 pixels in" : "to decode 2048 x 1024"),
                      HasSubstr(fmt::format("takes {} MiB", MemoryRoom{}.total(smallest.memory) >> 20)),
                      HasSubstr("and 3 MiB of memory may be used"), HasSubstr("model.vae_tile")));
  }
}

// A VAE that overflows, as some do in half precision, ends in no black image.
TEST_F(TiledVae, NanAndInfinityAreFound) {
  const TempDir dir;
  for (const char* tensor : {"encoder.conv_out.bias", "decoder.conv_out.bias"}) {
    std::vector<Given> weights = tensors_of(toy_folder() / "ae.safetensors");
    for (Given& t : weights)
      if (t.name == tensor) std::ranges::fill(t.tensor.data, std::byte{0x7c});  // NaN in float16
    write_file(dir / "vae.safetensors", weights);
    ModelConfig config = toy();
    config.given["vae_path"] = {dir / "vae.safetensors"};
    const Model broken(built_plugins(), config, "");
    const HostTensor x = latents(0);
    const Vae vae{device, broken, DType::f32, 0};
    Decoder decoder(vae, vae.fit(VaeRole::decode, {side, side}, {.limit = plenty}));
    const DeviceMemory arena(device, decoder.plan().memory.arena, "test");
    decoder.bind(arena.data());
    if (tensor[0] == 'e') {
      EXPECT_THAT(error_of([&] { LatentEncoding(vae, plenty, {}).prepare(cuts); }),
                  HasSubstr("cat_01.jpg: the VAE encodes it to a NaN or infinity in float32. Its file may be damaged"));
      HostTensor lost = x;
      lost.as<float>()[7] = INFINITY;
      EXPECT_THAT(error_of([&] { decoder.decode(lost); }), HasSubstr("its latents have a NaN or infinity"));
    } else {
      EXPECT_THAT(error_of([&] { decoder.decode(x); }),
                  HasSubstr("a sample: the VAE decodes it to a NaN or infinity in float32"));
    }
  }
}

// What the plan of a run says: the decoder in tiles that fit beside training, and its memory among the rest.
double planned_mib(const std::string& output) {
  const size_t at = output.find("memory     ");
  return at == output.npos ? 0 : std::stod(output.substr(at + 11));
}

TEST(TiledRun, PlanHasTheDecoderInTiles) {
  ToyRun run;
  const double bare = planned_mib(run.train({"--dry-run"}).output);
  run.set("prompts", "[a photo]").set("width", "1024").set("height", "1024");
  const HostResult whole = run.train({"--dry-run"});
  ASSERT_EQ(whole.code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("1, decoded as 1024 x 1024 pixels\n"));
  EXPECT_GT(planned_mib(whole.output), bare);

  const auto limit = static_cast<int64_t>(planned_mib(whole.output)) - 1;
  run.replace("training_folder:", fmt::format("memory: {{budget: {}MiB}}\ntraining_folder:", limit));
  const HostResult tiled = run.train({"--dry-run"});
  ASSERT_EQ(tiled.code, 0) << tiled.output;
  EXPECT_THAT(tiled.output, HasSubstr("1, decoded as 1024 x 1024 pixels in 2 x 2 tiles of "));
  EXPECT_LE(planned_mib(tiled.output), static_cast<double>(limit) + 0.05);
}

// Trains with encoding and decoding in tiles, and says so.
TEST(TiledRun, TrainsAndSamples) {
  ToyRun run;
  run.set("prompts", "[a photo]").set("width", "128").set("steps", "1").set("sample_every", "1");
  run.replace("model:\n", "model:\n  vae_tile: 64\n").set("resolution", "128");
  const HostResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("the VAE encodes images of "),
                                   HasSubstr("the VAE decodes images of 128 x 64 pixels in 3 x 1 tiles of ")));
}

}  // namespace
}  // namespace lh::tiles_test
