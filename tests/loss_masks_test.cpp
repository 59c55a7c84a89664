// How much places of latents count, from masks as they lie in the file.
#include "encode/loss_masks.h"

#include <gtest/gtest.h>

#include "data/read_cut.h"
#include "support/image_files.h"

namespace lh::test::loss_masks_test {
namespace {

// 32 x 32 pixels, of which the quarter above on the left is white; a place of latents is 8 x 8.
class Masks : public testing::Test {
 protected:
  Masks() {
    Image image{32, 32, std::vector<uint8_t>(32 * 32 * 3, 0)};
    for (size_t i = 0; i < image.rgb.size(); ++i)
      if (i / 3 % 32 < 16 && i / 3 / 32 < 16) image.rgb[i] = 255;
    write_png(folder_ / "mask.png", image);
    sample_.bucket = {32, 32};
    sample_.mask = {.file = open_image(folder_ / "mask.png")};
  }
  TempFolder folder_{"loss_masks"};
  Sample sample_;
  LossMasks masks_{8};
};

TEST_F(Masks, AreMirroredAsTheirImageIs) {
  for (const Flip flip : {Flip{}, Flip{.x = true}, Flip{.y = true}, Flip{.x = true, .y = true}}) {
    sample_.flip = flip;
    const std::vector<float> places = masks_.at(sample_);
    ASSERT_EQ(places.size(), 16u);
    for (size_t i = 0; i < places.size(); ++i) {
      const bool left = i % 4 < 2, above = i / 4 < 2;
      EXPECT_EQ(places[i], left != flip.x && above != flip.y ? 1.0f : 0.0f) << i << " " << flip.x << flip.y;
    }
  }
}

TEST_F(Masks, AreOneOnAverageOverABatch) {
  std::vector<float> places = masks_.at(sample_);
  sample_.mask.reset();
  const std::vector<float> whole = masks_.at(sample_);
  places.insert(places.end(), whole.begin(), whole.end());
  // A quarter of the one and all of the other are 5/8 of all places; the second sample counts twice.
  const std::vector<float> weights = place_weights({1, 2}, places, true);
  EXPECT_FLOAT_EQ(weights[0], 8.0f / 5);
  EXPECT_FLOAT_EQ(weights[15], 0);
  EXPECT_FLOAT_EQ(weights[31], 2 * 8.0f / 5);
  EXPECT_EQ(place_weights({1, 2}, places, false)[31], 2);
  // What nothing hides is nowhere: no division by zero.
  EXPECT_EQ(place_weights({0.5f}, std::vector<float>(16, 0), true), std::vector<float>(16, 0));
}

}  // namespace
}  // namespace lh::test::loss_masks_test
