// Models that paint a part of an image anew: the masks, what such a model is given of them, held against sums that are
// written out here, and that the denoisers put it where PyTorch's answers have it. The small model is "misfits" of
// tests/plugins, in its form "inpaint".
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <numbers>

#include "data/inpaint_mask.h"
#include "data/read_cut.h"
#include "encode/image_inputs.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::inpaint_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using testing::HasSubstr;

ImageFile content(char digit) { return {.path = {}, .content_hash = std::string(64, digit), .size = {64, 48}}; }

std::vector<uint8_t> drawn(char digit, int64_t number, const Bucket& size, Flip flip = {}) {
  return inpaint_mask({content(digit), size, flip, {}, InpaintMask{.file = {}, .number = number}});
}

TEST(InpaintMasks, ThatAreDrawnFollowFromContentAndNumber) {
  const Bucket size{64, 48};
  EXPECT_EQ(drawn('a', 3, size), drawn('a', 3, size));
  EXPECT_NE(drawn('a', 3, size), drawn('a', 4, size));
  EXPECT_NE(drawn('a', 3, size), drawn('b', 3, size));
}

// A quarter of them is the whole image; the others' mean share is that of rectangles and ellipses of any size: sides of
// 0 to all, half of them with the area pi / 4 of the box. Rounding to odd numbers of pixels adds a little.
TEST(InpaintMasks, ThatAreDrawnHaveTheSharesOfTheirLaw) {
  const Bucket size{64, 48};
  constexpr int count = 4000;
  int whole = 0;
  double share = 0;
  for (int i = 0; i < count; ++i) {
    const std::vector<uint8_t> mask = drawn('c', i, size);
    ASSERT_EQ(mask.size(), 64u * 48u);
    const auto painted = std::ranges::count(mask, 1);
    EXPECT_EQ(painted + std::ranges::count(mask, 0), 64 * 48);
    EXPECT_GT(painted, 0);
    if (painted == 64 * 48)
      ++whole;
    else
      share += static_cast<double>(painted) / (64 * 48);
  }
  // Five standard deviations; a drawn rectangle is the whole image too where both sides are, once in thousands.
  EXPECT_NEAR(whole, count / 4.0, 5 * std::sqrt(count * 0.25 * 0.75) + 5);
  constexpr double expected = 0.5 * 0.5 * (1 + std::numbers::pi / 4) / 2, deviation = 0.25;
  EXPECT_NEAR(share / (count - whole), expected, 5 * deviation / std::sqrt(count * 0.75) + 1.0 / 48);
}

TEST(InpaintMasks, AreMirroredWithTheirImage) {
  const Bucket size{40, 24};
  const auto at = [&](const std::vector<uint8_t>& mask, int64_t y, int64_t x) {
    return mask[static_cast<size_t>(y * 40 + x)];
  };
  for (int64_t number = 0; number < 8; ++number) {
    const std::vector<uint8_t> plain = drawn('d', number, size);
    for (const Flip flip : {Flip{.x = true}, Flip{.y = true}, Flip{.x = true, .y = true}}) {
      const std::vector<uint8_t> mirrored = drawn('d', number, size, flip);
      for (int64_t y = 0; y < 24; ++y)
        for (int64_t x = 0; x < 40; ++x)
          ASSERT_EQ(at(mirrored, y, x), at(plain, flip.y ? 23 - y : y, flip.x ? 39 - x : x));
    }
  }
}

// 0.299 R + 0.587 G + 0.114 B, of which 127.5 and more is white.
TEST(InpaintMasks, OfFilesAreWhereGreyIsBright) {
  struct Row {
    uint8_t r, g, b;
    uint8_t painted;
  };
  const Row rows[] = {{0, 0, 0, 0},   {255, 255, 255, 1}, {127, 127, 127, 0}, {128, 128, 128, 1}, {255, 0, 0, 0},
                      {0, 255, 0, 1}, {0, 0, 255, 0},     {255, 0, 255, 0},   {255, 255, 0, 1},   {0, 218, 0, 1},
                      {0, 217, 0, 0}, {255, 88, 0, 1},    {255, 87, 0, 0},    {100, 141, 131, 1}};
  const TempDir dir;
  for (const Row& row : rows) {
    Image image{16, 16, {}};
    for (int i = 0; i < 16 * 16; ++i) image.rgb.insert(image.rgb.end(), {row.r, row.g, row.b});
    write_png(dir / "mask.png", image);
    const std::vector<uint8_t> mask =
        inpaint_mask({content('a'), {16, 16}, {}, {}, InpaintMask{open_image(dir / "mask.png")}});
    EXPECT_EQ(mask, std::vector<uint8_t>(256, row.painted)) << int{row.r} << " " << int{row.g} << " " << int{row.b};
  }
}

// What the model is given of an image and its mask: each number made anew from the pixels, in float64.
TEST(InpaintInputs, AreTheMaskAndTheLatentsOfWhatItLeaves) {
  setenv("LORA_TEST_MISFIT", "inpaint", 1);
  const TempDir dir;
  const auto numbers = [](Shape shape) {
    HostTensor out(Desc{DType::f32, std::move(shape)});
    for (size_t i = 0; i < out.as<float>().size(); ++i)
      out.as<float>()[i] = 0.05f * static_cast<float>(static_cast<int64_t>(i * 7919 % 41) - 20);
    return out;
  };
  const HostTensor down = numbers({8, 3, 8, 8});
  write_file(dir / "model.safetensors", {{"w.weight", numbers({4, 4})},
                                         {"enc.table.weight", numbers({32128, 8})},
                                         {"vae.down.weight", down},
                                         {"vae.up.weight", numbers({192, 4})}});
  const Image photo = test_picture(64, 48);
  Image white{64, 48, std::vector<uint8_t>(64 * 48 * 3, 0)};
  const auto painted = [](int64_t y, int64_t x) { return (x * 5 + y * 3) % 7 < 3 && y > 2; };
  for (int64_t y = 0; y < 48; ++y)
    for (int64_t x = 0; x < 64; ++x)
      for (int64_t c = 0; c < 3; ++c)
        if (painted(y, x)) white.rgb[static_cast<size_t>((y * 64 + x) * 3 + c)] = 255;
  write_png(dir / "photo.png", photo);
  write_png(dir / "mask.png", white);

  const Registry registry({fs::path(binary_dir()) / "lib" / "lora-host-misfits"}, {});
  const Model model(registry, {.name_or_path = dir / "model.safetensors"}, "misfits");
  unsetenv("LORA_TEST_MISFIT");
  Device device(tested_device());
  const Vae vae{device, model, DType::f32};
  LatentEncoding latents(vae, int64_t{1} << 40, {});
  ImageInputs images(model.recipe(), latents);
  const ImageCut own{open_image(dir / "photo.png"), {64, 48}, {}, {}, InpaintMask{open_image(dir / "mask.png")}};
  EXPECT_EQ(images.to_encode({}, own).size(), 1u);
  latents.prepare(images.to_encode({}, own));
  const Random posterior(7, Purpose::inpaint_posterior, 5, 1);
  NamedTensors given = images.make({}, own, posterior);
  ASSERT_EQ(given.size(), 2u);

  const HostTensor& hole = given.at("hole");
  ASSERT_EQ(hole.desc, (Desc{DType::f32, {1, 6, 8, 64}}));
  for (int64_t i = 0; i < 6 * 8 * 64; ++i) {
    const int64_t pixel = i % 64, x = i / 64 % 8 * 8 + pixel % 8, y = i / 64 / 8 * 8 + pixel / 8;
    ASSERT_EQ(hole.as<float>()[static_cast<size_t>(i)], painted(y, x) ? 1.0f : 0.0f) << i;
  }

  const HostTensor& seen = given.at("seen");
  ASSERT_EQ(seen.desc, (Desc{DType::f32, {1, 6, 8, 4}}));
  std::vector<float> normal(6 * 8 * 4);
  Random(posterior).fill_normal(normal);
  for (int64_t place = 0; place < 6 * 8; ++place) {
    double said[8] = {};  // four means, four deviations
    for (int64_t o = 0; o < 8; ++o)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t i = 0; i < 64; ++i) {
          const int64_t y = place / 8 * 8 + i / 8, x = place % 8 * 8 + i % 8;
          if (!painted(y, x))
            said[o] += (photo.rgb[static_cast<size_t>((y * 64 + x) * 3 + c)] / 127.5 - 1) *
                       double{down.as<float>()[static_cast<size_t>((o * 3 + c) * 64 + i)]};
        }
    for (int64_t o = 0; o < 4; ++o) {
      const auto at = static_cast<size_t>(place * 4 + o);
      // 192 products of numbers below 1, and as many roundings.
      EXPECT_NEAR(seen.as<float>()[at], said[o] + said[o + 4] * double{normal[at]}, 1e-4) << at;
    }
  }
}

// A first layer that is linear takes further channels apart: where its columns for them are those of the latents times
// a factor, the wide model at (latents, mask, masked image) is the plain one at their weighted sum. So the answers that
// PyTorch gave for the plain model are those of the wide one, whose inputs are made here such that the sum is the plain
// case's latents. A value that the graph puts into a wrong column, or takes from a wrong pixel, changes all of them.
class WideDenoiser {
 public:
  explicit WideDenoiser(const char* plain) : case_(fs::path(test_data()) / "golden" / plain) {
    write_file(folder_ / "expected.safetensors", {{"output", case_.expected("output")}});
    plain_ = case_.tensor("latents", case_.json.at("inputs").at("latents"));
    const Shape& shape = plain_.desc.shape;  // [B, C, h, w]
    batch_ = shape[0], channels_ = shape[1], height_ = shape[2], width_ = shape[3];
  }
  int64_t batch() const { return batch_; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  // Where the plain case has the number for this sample, channel and place.
  size_t at(int64_t b, int64_t c, int64_t y, int64_t x) const {
    return static_cast<size_t>(((b * channels_ + c) * height_ + y) * width_ + x);
  }
  float pixel(int64_t b, int64_t y, int64_t x) const {  // of the mask, 8 height x 8 width
    return (b * 31 + y * 7 + x * 3 + y * x / 5) % 5 < 2 ? 1.0f : 0.0f;
  }
  HostTensor weight(const std::string& key) const { return case_.tensor(key, case_.json.at("weights").at(key)); }

  // mask_part(b, c, y, x): what the mask adds to a latent. The masked image counts half.
  template <typename MaskPart>
  std::string run(const std::string& key, const HostTensor& wide, const MaskPart& mask_part) {
    std::vector<float> latents(plain_.as<float>().size()), masked(latents.size()), mask;
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t c = 0; c < channels_; ++c)
        for (int64_t y = 0; y < height_; ++y)
          for (int64_t x = 0; x < width_; ++x) {
            const size_t i = at(b, c, y, x);
            latents[i] = 0.125f * static_cast<float>(static_cast<int64_t>(i * 7919 % 31) - 15);
            masked[i] =
                static_cast<float>(2 * (double{plain_.as<float>()[i]} - double{latents[i]} - mask_part(b, c, y, x)));
          }
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t i = 0; i < 64; ++i)  // the pixels of a place are channels here
        for (int64_t y = 0; y < height_; ++y)
          for (int64_t x = 0; x < width_; ++x) mask.push_back(pixel(b, 8 * y + i / 8, 8 * x + i % 8));
    const std::vector<int64_t> shape{batch_, channels_, height_, width_};
    nlohmann::json json = case_.json;
    json.erase("lora");  // the forward pass alone: what is behind the first layer is the plain model's
    json.erase("optimizer");
    nlohmann::json& inputs = json["inputs"];
    inputs["latents"] = {{"shape", shape}, {"values", latents}};
    inputs["masked_image"] = {{"shape", shape}, {"values", masked}};
    inputs["mask"] = {{"shape", {batch_, int64_t{64}, height_, width_}}, {"values", mask}};
    const std::vector<int64_t> dims(wide.desc.shape.dims().begin(), wide.desc.shape.dims().end());
    json["weights"][key] = {{"shape", dims},
                            {"values", std::vector<float>(wide.as<float>().begin(), wide.as<float>().end())}};
    put(folder_ / "case.json", json.dump());
    const std::string command = fmt::format("{}/bin/golden_runner '{}' 2>&1", binary_dir(), folder_.path().string());
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    for (int ch = fgetc(pipe); ch != EOF; ch = fgetc(pipe)) output.push_back(static_cast<char>(ch));
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 0) << output;
    return output;
  }

 private:
  Case case_;
  TempDir folder_;
  HostTensor plain_;
  int64_t batch_ = 0, channels_ = 0, height_ = 0, width_ = 0;
};

// Latents, then the mask at the first pixel of each place, then the masked image.
TEST(InpaintDenoisers, OfSdxlEqualThePlainOne) {
  WideDenoiser model("sdxl_tiny");
  constexpr const char* key = "input_blocks.0.0.weight";
  constexpr double of_mask[] = {0.5, -1, 0.25, 2};  // to each latent channel
  const HostTensor plain = model.weight(key);       // [O, 4, 3, 3]
  const int64_t rows = plain.desc.shape[0];
  HostTensor wide(Desc{DType::f32, {rows, 9, 3, 3}});
  for (int64_t o = 0; o < rows; ++o)
    for (int64_t k = 0; k < 9; ++k) {
      const auto from = [&](int64_t c) { return double{plain.as<float>()[static_cast<size_t>((o * 4 + c) * 9 + k)]}; };
      const auto put = [&](int64_t c, double value) {
        wide.as<float>()[static_cast<size_t>((o * 9 + c) * 9 + k)] = static_cast<float>(value);
      };
      double mask = 0;
      for (int64_t c = 0; c < 4; ++c) {
        put(c, from(c));
        put(5 + c, 0.5 * from(c));
        mask += of_mask[c] * from(c);
      }
      put(4, mask);
    }
  const std::string output = model.run(key, wide, [&](int64_t b, int64_t c, int64_t y, int64_t x) {
    return of_mask[c] * double{model.pixel(b, 8 * y, 8 * x)};
  });
  EXPECT_THAT(output, HasSubstr("sdxl_tiny output rel_error="));
  EXPECT_THAT(output, HasSubstr(" 0 failed"));
}

// A token of Fill is 2 x 2 places: 64 numbers of the latents, 64 of the masked image, 256 of the mask. Number
// 4 c + 2 i + j is that of channel c in row i and column j; of the mask the channels are the 8 x 8 pixels of a place.
TEST(InpaintDenoisers, OfFillEqualThePlainOne) {
  WideDenoiser model("flux_schnell_tiny");
  constexpr const char* key = "img_in.weight";
  const HostTensor plain = model.weight(key);  // [h, 64]
  const int64_t rows = plain.desc.shape[0];
  // Number k of the mask adds to one number of the latents.
  const auto target = [](int64_t k) { return (k * 7 + 3) % 64; };
  const auto factor = [](int64_t k) { return 0.25 * static_cast<double>(k * 11 % 9 - 4); };
  HostTensor wide(Desc{DType::f32, {rows, 384}});
  for (int64_t o = 0; o < rows; ++o) {
    const auto from = [&](int64_t k) { return plain.as<float>()[static_cast<size_t>(o * 64 + k)]; };
    float* to = wide.as<float>().data() + o * 384;
    for (int64_t k = 0; k < 64; ++k) to[k] = from(k), to[64 + k] = 0.5f * from(k);
    for (int64_t k = 0; k < 256; ++k) to[128 + k] = static_cast<float>(factor(k) * double{from(target(k))});
  }
  const std::string output = model.run(key, wide, [&](int64_t b, int64_t c, int64_t y, int64_t x) {
    const int64_t number = 4 * c + 2 * (y % 2) + x % 2;
    double sum = 0;
    for (int64_t k = 0; k < 256; ++k) {
      if (target(k) != number) continue;
      const int64_t place_y = y / 2 * 2 + k % 4 / 2, place_x = x / 2 * 2 + k % 2, inside = k / 4;
      sum += factor(k) * double{model.pixel(b, 8 * place_y + inside / 8, 8 * place_x + inside % 8)};
    }
    return sum;
  });
  EXPECT_THAT(output, HasSubstr("flux_schnell_tiny output rel_error="));
  EXPECT_THAT(output, HasSubstr(" 0 failed"));
}

}  // namespace
}  // namespace lh::test::inpaint_test
