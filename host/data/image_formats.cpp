#include "data/image_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/lower.h"

namespace lh {
namespace {

#ifdef LORA_WEBP
#define WEBP_CODEC webp_header, decode_webp, webp_parameters
#else
#define WEBP_CODEC nullptr, nullptr, nullptr
#endif
#ifdef LORA_GIF
#define GIF_CODEC gif_header, decode_gif, nullptr
#else
#define GIF_CODEC nullptr, nullptr, nullptr
#endif
#ifdef LORA_BMP
#define BMP_CODEC bmp_header, decode_bmp, nullptr
#else
#define BMP_CODEC nullptr, nullptr, nullptr
#endif
#ifdef LORA_TIFF
#define TIFF_CODEC tiff_header, decode_tiff, nullptr
#else
#define TIFF_CODEC nullptr, nullptr, nullptr
#endif
#ifdef LORA_HEIF
#define HEIF_CODEC heif_header, decode_heif, nullptr
#define AVIF_DECODES decodes_avif
#define HEIC_DECODES decodes_heic
#else
#define HEIF_CODEC nullptr, nullptr, nullptr
#define AVIF_DECODES [] { return false; }
#define HEIC_DECODES [] { return false; }
#endif

bool has(Bytes file, size_t offset, std::string_view text) {
  return file.size() >= offset + text.size() && std::memcmp(file.data() + offset, text.data(), text.size()) == 0;
}

// The brand of a file of boxes, as HEIC, AVIF and videos are.
template <typename... Brands>
bool has_brand(Bytes file, Brands... brands) {
  return has(file, 4, "ftyp") && (has(file, 8, brands) || ...);
}

constexpr std::string_view jpeg_names[] = {".jpg", ".jpeg", ".jfif"}, png_names[] = {".png"}, webp_names[] = {".webp"},
                           gif_names[] = {".gif"}, bmp_names[] = {".bmp"}, tiff_names[] = {".tif", ".tiff"},
                           avif_names[] = {".avif"}, heic_names[] = {".heic", ".heif"}, jxl_names[] = {".jxl"},
                           jpeg_2000_names[] = {".jp2"}, ppm_names[] = {".ppm"}, tga_names[] = {".tga"};
constexpr bool (*never)(Bytes) = [](Bytes) { return false; };  // told by their names alone

const ImageFormat formats[] = {
    {"JPEG", jpeg_names, [](Bytes file) { return has(file, 0, "\xff\xd8\xff"); }, jpeg_header, decode_jpeg,
     jpeg_parameters},
    {"PNG", png_names, [](Bytes file) { return has(file, 0, "\x89PNG\r\n\x1a\n"); }, png_header, decode_png,
     png_parameters},
    {"WebP", webp_names, [](Bytes file) { return has(file, 0, "RIFF") && has(file, 8, "WEBP"); }, WEBP_CODEC,
     "libwebp-dev"},
    {"GIF", gif_names, [](Bytes file) { return has(file, 0, "GIF8"); }, GIF_CODEC, "libgif-dev"},
    {"BMP", bmp_names, [](Bytes file) { return has(file, 0, "BM"); }, BMP_CODEC, "libstb-dev"},
    {"TIFF", tiff_names,
     [](Bytes file) {
       return has(file, 0, std::string_view("II*\0", 4)) || has(file, 0, std::string_view("MM\0*", 4));
     },
     TIFF_CODEC, "libtiff-dev"},
    {"AVIF", avif_names, [](Bytes file) { return has_brand(file, "avif"); }, HEIF_CODEC, "libheif1", AVIF_DECODES},
    {"HEIC", heic_names, [](Bytes file) { return has_brand(file, "heic", "heix", "mif1"); }, HEIF_CODEC, "libheif1",
     HEIC_DECODES},
    {"JPEG XL", jxl_names, [](Bytes file) { return has(file, 0, "\xff\x0a") || has(file, 4, "JXL "); }},
    {"JPEG 2000", jpeg_2000_names, never},
    {"PPM", ppm_names, never},
    {"TGA", tga_names, never},
};

bool has_name(const ImageFormat& format, const std::filesystem::path& path) {
  return std::ranges::find(format.extensions, lower(path.extension().string())) != format.extensions.end();
}

}  // namespace

std::span<const ImageFormat> image_formats() { return formats; }

const ImageFormat* format_of(Bytes file) {
  const auto found = std::ranges::find_if(formats, [&](const ImageFormat& format) { return format.begins(file); });
  return found == std::end(formats) ? nullptr : found;
}

std::vector<std::string_view> image_extensions() {
  std::vector<std::string_view> all;
  for (const ImageFormat& format : formats)
    if (format.read()) all.insert(all.end(), format.extensions.begin(), format.extensions.end());
  return all;
}

bool is_image_name(const std::filesystem::path& path) {
  return std::ranges::any_of(formats,
                             [&](const ImageFormat& format) { return has_name(format, path) && format.read(); });
}

bool is_any_image_name(const std::filesystem::path& path) {
  return std::ranges::any_of(formats, [&](const ImageFormat& format) { return has_name(format, path); });
}

std::string formats_that_are_read() {
  std::vector<std::string_view> names;
  for (const ImageFormat& format : formats)
    if (format.read()) names.push_back(format.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string formats_without_library() {
  std::vector<std::string> names;
  for (const ImageFormat& format : formats)
    if (!format.read() && !format.package.empty()) names.push_back(fmt::format("{} ({})", format.name, format.package));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace lh
