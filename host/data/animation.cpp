#include "data/animation.h"

#include "core/error.h"
#include "data/codecs.h"

#ifdef LORA_ANIMATION
#include <webp/encode.h>
#include <webp/mux.h>

#include <cmath>
#include <limits>
#include <memory>
#include <new>
#endif

namespace lh {

#ifdef LORA_ANIMATION
namespace {

constexpr float quality = 90;

struct Picture {
  Picture(const Image& image) {
    if (WebPPictureInit(&webp) == 0) fail(Code::internal, "libwebp: headers and library do not match");
    webp.use_argb = 1;
    webp.width = static_cast<int>(image.width);
    webp.height = static_cast<int>(image.height);
    if (WebPPictureImportRGB(&webp, image.rgb.data(), static_cast<int>(3 * image.width)) == 0) throw std::bad_alloc();
  }
  ~Picture() { WebPPictureFree(&webp); }
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  WebPPicture webp{};
};

struct Encoded {
  Encoded() { WebPDataInit(&data); }
  ~Encoded() { WebPDataClear(&data); }
  Encoded(const Encoded&) = delete;
  Encoded& operator=(const Encoded&) = delete;
  WebPData data{};
};

class Encoder {
 public:
  Encoder(int64_t width, int64_t height) {
    WebPAnimEncoderOptions options;
    if (WebPConfigPreset(&config_, WEBP_PRESET_DEFAULT, quality) == 0 || WebPAnimEncoderOptionsInit(&options) == 0)
      fail(Code::internal, "libwebp: headers and library do not match");
    options.anim_params.loop_count = 0;  // forever
    encoder_.reset(WebPAnimEncoderNew(static_cast<int>(width), static_cast<int>(height), &options));
    if (encoder_ == nullptr) throw std::bad_alloc();
  }
  // Shown from so many milliseconds on.
  void add(const Image& image, int from) {
    Picture picture(image);
    check(WebPAnimEncoderAdd(encoder_.get(), &picture.webp, from, &config_));
  }
  void finish(int end, Encoded& out) {
    check(WebPAnimEncoderAdd(encoder_.get(), nullptr, end, nullptr));
    check(WebPAnimEncoderAssemble(encoder_.get(), &out.data));
  }

 private:
  void check(int succeeded) const {
    if (succeeded == 0)
      fail(Code::resource, "animation: it could not be encoded: {}", WebPAnimEncoderGetError(encoder_.get()));
  }
  struct Delete {
    void operator()(WebPAnimEncoder* encoder) const { WebPAnimEncoderDelete(encoder); }
  };
  WebPConfig config_{};
  std::unique_ptr<WebPAnimEncoder, Delete> encoder_;
};

// When a frame begins, of its number: so roundings do not add up.
int milliseconds(size_t frame, double fps) {
  const double at = std::round(static_cast<double>(frame) * 1000 / fps);
  if (!(at >= 0 && at <= std::numeric_limits<int>::max()))
    fail(Code::internal, "animation: {} frames at {} a second", frame, fps);
  return static_cast<int>(at);
}

void add_exif(Encoded& file, const std::vector<std::byte>& exif) {
  const WebPData chunk{reinterpret_cast<const uint8_t*>(exif.data()), exif.size()};
  const std::unique_ptr<WebPMux, decltype(&WebPMuxDelete)> mux(WebPMuxCreate(&file.data, 0), WebPMuxDelete);
  Encoded with;
  if (mux == nullptr || WebPMuxSetChunk(mux.get(), "EXIF", &chunk, 0) != WEBP_MUX_OK ||
      WebPMuxAssemble(mux.get(), &with.data) != WEBP_MUX_OK)
    fail(Code::resource, "animation: it could not be encoded: no EXIF can be added");
  std::swap(file.data, with.data);
}

void check_frames(std::span<const Image> frames) {
  if (frames.empty()) fail(Code::internal, "animation: there is no frame");
  for (const Image& frame : frames)
    if (frame.width < 1 || frame.height < 1 || frame.width > WEBP_MAX_DIMENSION || frame.height > WEBP_MAX_DIMENSION ||
        frame.width != frames[0].width || frame.height != frames[0].height ||
        static_cast<int64_t>(frame.rgb.size()) != frame.width * frame.height * 3)
      fail(Code::internal, "animation: a frame of {} x {} pixels with {} bytes of RGB behind one of {} x {}",
           frame.width, frame.height, frame.rgb.size(), frames[0].width, frames[0].height);
}

}  // namespace

bool writes_animations() { return true; }

std::vector<std::byte> encode_animation(std::span<const Image> frames, double fps, const std::string& parameters) {
  check_frames(frames);
  Encoder encoder(frames[0].width, frames[0].height);
  for (size_t i = 0; i < frames.size(); ++i) encoder.add(frames[i], milliseconds(i, fps));
  Encoded file;
  encoder.finish(milliseconds(frames.size(), fps), file);
  if (!parameters.empty()) add_exif(file, exif_with_comment(parameters));
  const auto* bytes = reinterpret_cast<const std::byte*>(file.data.bytes);
  return {bytes, bytes + file.data.size};
}

// The encoder lets the first frame fill the canvas.
Image first_frame(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_image_file(path);
  const WebPData file{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPMux, decltype(&WebPMuxDelete)> mux(WebPMuxCreate(&file, 0), WebPMuxDelete);
  WebPMuxFrameInfo frame{};
  Encoded image;
  if (mux == nullptr || WebPMuxGetFrame(mux.get(), 1, &frame) != WEBP_MUX_OK)
    fail(Code::data, "image {}: expected a WebP file with a frame at least, found none", path.string());
  image.data = frame.bitstream;
  return decode_image({reinterpret_cast<const std::byte*>(image.data.bytes), image.data.size}, path);
}

#else

bool writes_animations() { return false; }

namespace {

[[noreturn]] void refuse() {
  fail(Code::config,
       "animation: this lora-host was built without libwebp, which writes and reads them (install libwebp-dev and "
       "build again)");
}

}  // namespace

std::vector<std::byte> encode_animation(std::span<const Image>, double, const std::string&) { refuse(); }
Image first_frame(const std::filesystem::path&) { refuse(); }

#endif

}  // namespace lh
