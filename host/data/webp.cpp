// WebP by libwebp, still images only.
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "data/codecs.h"

#ifdef LORA_WEBP
#include <webp/decode.h>
#endif

namespace lh {

#ifdef LORA_WEBP
namespace {

std::string_view status_text(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OK: return "no error";
    case VP8_STATUS_OUT_OF_MEMORY: return "out of memory";
    case VP8_STATUS_INVALID_PARAM: return "invalid parameter";
    case VP8_STATUS_BITSTREAM_ERROR: return "broken bit stream";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "unsupported feature";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return "the file ends too early";
    case VP8_STATUS_USER_ABORT: return "aborted";
  }
  return "unknown error";
}

[[noreturn]] void refuse(VP8StatusCode status) {
  fail(Code::data, "damaged or cut-short WebP: {} (save the image again or fetch the file anew)", status_text(status));
}

const uint8_t* raw(Bytes file) { return reinterpret_cast<const uint8_t*>(file.data()); }

WebPBitstreamFeatures features_of(Bytes file) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(raw(file), file.size(), &features);
  if (status != VP8_STATUS_OK) refuse(status);
  if (features.has_animation != 0) fail(Code::data, "animated WebP: only still images can be used (save one frame)");
  check_image_size(features.width, features.height);
  return features;
}

// Walks the RIFF chunks; empty where there is none.
Bytes exif_of_webp(Bytes file) {
  constexpr size_t riff_header = 12, chunk_header = 8;
  for (size_t at = riff_header; at <= file.size() && file.size() - at >= chunk_header;) {
    uint32_t length = 0;
    for (size_t i = 4; i > 0; --i) length = length << 8 | std::to_integer<uint32_t>(file[at + 3 + i]);
    if (length > file.size() - at - chunk_header) return {};
    if (std::memcmp(file.data() + at, "EXIF", 4) == 0) return file.subspan(at + chunk_header, length);
    at += chunk_header + size_t{length} + length % 2;
  }
  return {};
}

}  // namespace

ImageHeader webp_header(Bytes file) {
  const WebPBitstreamFeatures features = features_of(file);
  return {{features.width, features.height}, exif_block_orientation(exif_of_webp(file))};
}

std::string webp_parameters(Bytes file) { return exif_comment(exif_of_webp(file)); }

Image decode_webp(Bytes file) {
  const WebPBitstreamFeatures features = features_of(file);
  const size_t channels = features.has_alpha != 0 ? 4 : 3;
  Image image{features.width, features.height, {}};
  image.rgb.resize(static_cast<size_t>(image.width * image.height) * channels);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) fail(Code::internal, "libwebp: headers and library do not match");
  config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {image.rgb.data(), static_cast<int>(channels * static_cast<size_t>(image.width)),
                          image.rgb.size()};
  const VP8StatusCode status = WebPDecode(raw(file), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) refuse(status);
  if (channels == 4) {
    const size_t pixels = image.rgb.size() / 4;
    for (size_t i = 0; i < pixels; ++i) {  // in place: the result never overtakes the source
      const uint8_t alpha = image.rgb[4 * i + 3];
      image.alpha.push_back(alpha);
      for (size_t c = 0; c < 3; ++c) image.rgb[3 * i + c] = over_white(image.rgb[4 * i + c], alpha);
    }
    image.rgb.resize(pixels * 3);
  }
  return image;
}

#endif

}  // namespace lh
