// Resampling against a double-precision reference, and the images that the host draws.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "data/canvas.h"
#include "data/image.h"
#include "support/image_files.h"

namespace lh::draw_test {
namespace {

using test::test_picture;

// Direct two-dimensional sum of the covered, centred image.
double reference(const Image& in, int64_t scaled_w, int64_t scaled_h, int64_t x, int64_t y, int64_t c) {
  const auto kernel = [](double v) {
    if (v == 0) return 1.0;
    if (std::abs(v) >= 3) return 0.0;
    const double a = v * std::numbers::pi;
    return 3 * std::sin(a) * std::sin(a / 3) / (a * a);
  };
  const auto weights = [&](int64_t from, int64_t to, int64_t at) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0);
    const double centre = (static_cast<double>(at) + 0.5) * scale;
    std::vector<double> w;
    double sum = 0;
    for (int64_t s = 0; s < from; ++s) {
      w.push_back(kernel((static_cast<double>(s) + 0.5 - centre) / stretch));
      sum += w.back();
    }
    for (double& v : w) v /= sum;
    return w;
  };
  const auto wx = weights(in.width, scaled_w, x), wy = weights(in.height, scaled_h, y);
  double sum = 0;
  for (int64_t j = 0; j < in.height; ++j)
    for (int64_t i = 0; i < in.width; ++i)
      sum += wx[static_cast<size_t>(i)] * wy[static_cast<size_t>(j)] *
             in.rgb[static_cast<size_t>((j * in.width + i) * 3 + c)];
  return std::min(std::max(sum, 0.0), 255.0);
}

TEST(Resize, EqualsTheReference) {
  Image noise = test_picture(37, 29);
  uint32_t state = 3;
  for (uint8_t& v : noise.rgb) v = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  struct Case {
    int64_t w, h, scaled_w, scaled_h;
  };
  for (const Case& t : {Case{16, 16, 20, 16}, Case{16, 8, 16, 13}, Case{64, 48, 64, 50}, Case{7, 29, 37, 29}}) {
    const Image out = resize_and_crop(noise, t.w, t.h);
    ASSERT_EQ(static_cast<int64_t>(out.rgb.size()), t.w * t.h * 3);
    for (int64_t y = 0; y < t.h; ++y)
      for (int64_t x = 0; x < t.w; ++x)
        for (int64_t c = 0; c < 3; ++c)
          EXPECT_NEAR(
              out.rgb[static_cast<size_t>((y * t.w + x) * 3 + c)],
              reference(noise, t.scaled_w, t.scaled_h, x + (t.scaled_w - t.w) / 2, y + (t.scaled_h - t.h) / 2, c), 0.51)
              << t.w << 'x' << t.h << " at " << x << ',' << y;
  }
}

TEST(Resize, SameSizeAndCropsAreExactAndFlatStaysFlat) {
  const Image image = test_picture(31, 17);
  EXPECT_EQ(resize_and_crop(image, 31, 17).rgb, image.rgb);
  const Image middle = resize_and_crop(image, 17, 17);
  for (size_t y = 0; y < 17; ++y)
    for (size_t i = 0; i < 17 * 3; ++i) EXPECT_EQ(middle.rgb[y * 51 + i], image.rgb[y * 93 + 21 + i]);
  const Image flat{50, 40, std::vector<uint8_t>(50 * 40 * 3, 77)};
  for (const uint8_t v : resize_and_crop(flat, 13, 64).rgb) EXPECT_EQ(v, 77);
  EXPECT_EQ(resize_and_crop(Image{1, 1, {1, 2, 3}}, 2, 1).rgb, (std::vector<uint8_t>{1, 2, 3, 1, 2, 3}));
  EXPECT_THROW(resize_and_crop(Image{}, 4, 4), Error);
  EXPECT_THROW(resize_and_crop(flat, 0, 4), Error);
}

TEST(Canvas, WrapsAndReplaces) {
  EXPECT_EQ(drawable("a\xc3\xa4\xe7\x8c\xab\n~"), "a?? ~");
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("abcdefgh", 3), (std::vector<std::string>{"abc", "def", "gh"}));
  EXPECT_EQ(wrap("", 3), std::vector<std::string>{});
}

TEST(ImageGrid, PlacesImagesAndRefusesOddSizes) {
  const Image image = test_picture(40, 30);
  const Image grid = image_grid({{image, image}, {image}}, {"a", "b"}, {"first prompt", "second"});
  EXPECT_EQ(grid.width, 60 + 4 + 2 * 44);
  EXPECT_EQ(grid.height, 10 + 4 + 2 * 34);
  for (int64_t y = 0; y < 30; ++y)
    for (int64_t x = 0; x < 40 * 3; ++x)
      EXPECT_EQ(grid.rgb[static_cast<size_t>(((y + 14) * grid.width + 64) * 3 + x)],
                image.rgb[static_cast<size_t>(y * 120 + x)]);
  EXPECT_EQ(image_grid({{image, test_picture(4, 4)}}, {}, {}).width, 4 + 2 * 44);  // places are as large as the largest
  EXPECT_THROW(image_grid({}, {}, {}), Error);
  EXPECT_EQ(image_grid({{image}}, {}, {}).width, 4 + 44);
}

TEST(LineChart, DrawsAnyNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<double, double>> points;
  const Image empty = line_chart(points, "loss");
  points = {{0, nan}, {1, 0.5}};
  const Image one = line_chart(points, "loss");
  for (int i = 2; i < 3000; ++i) points.emplace_back(i, 1.0 / i);
  const Image many = line_chart(points, "loss");
  EXPECT_NE(one.rgb, empty.rgb);
  EXPECT_NE(many.rgb, one.rgb);
  EXPECT_EQ(many.rgb, line_chart(points, "loss").rgb);
  line_chart({{1e300, -1e300}, {2e300, 1e300}}, "huge");
  line_chart({{0, 0}, {0, 0}}, "zero");
}

}  // namespace
}  // namespace lh::draw_test
