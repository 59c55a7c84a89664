// Images in and out: JPEG, PNG and WebP to 8-bit RGB the right way up, resampling, PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lh {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;         // [height, width, 3]
  std::vector<uint8_t> alpha = {};  // [height, width], of a decoder where the file has it
};

// EXIF orientation applied, alpha over white, grey and palette to RGB, 16 bits to 8. Throws lh::Error(Code::data)
// naming the file and what is wrong; dimensions are checked before memory is taken (16384 a side, 100 megapixels).
Image decode_image(const std::filesystem::path& path);
// Dimensions after orientation, from the header alone.
struct ImageSize {
  int64_t width = 0, height = 0;
};
ImageSize image_size(const std::filesystem::path& path);
// How an image comes to a size: scaled so that one side fits and the other covers, then cropped, in the centre unless
// it is said where.
struct CropGeometry {
  ImageSize scaled;
  int64_t left = 0, top = 0;  // of the crop, in scaled pixels
};
// Of the room beside the crop and above it, the shares that are left of it and above it; and how large the scaled image
// is: from 0, no larger than it must be, to 1, as large as the image is.
struct CropAt {
  double x = 0.5, y = 0.5, scale = 0;
  bool operator==(const CropAt&) const = default;
};
CropGeometry crop_geometry(ImageSize from, ImageSize to, CropAt at = {});
// Does it: Lanczos, antialiased when shrinking.
Image resize_and_crop(const Image& image, int64_t width, int64_t height, CropAt at = {});
// The same of the whole image, whose sides' ratio is not kept.
Image stretch(const Image& image, int64_t width, int64_t height);
// Hues turned by so many degrees, and every value v of 0 to 255 to the power of gamma.
void recolour(Image& image, double hue, double gamma);
void write_png(const std::filesystem::path& path, const Image& image);
// parameters: how it was made, UTF-8, as the text of this name that other programs read; empty: not said.
std::vector<std::byte> encode_png(const Image& image, const std::string& parameters = {});
// A labelled grid: rows x columns of images in places of the largest one's size, column titles above, row captions on
// the left (drawn in a small font).
Image image_grid(const std::vector<std::vector<Image>>& rows, const std::vector<std::string>& column_titles,
                 const std::vector<std::string>& row_titles);
// A line chart of (x, y) with axes and numbers, raw values pale and a moving average dark: the loss curve.
Image line_chart(const std::vector<std::pair<double, double>>& points, const std::string& title);

}  // namespace lh
