// Videos by FFmpeg: a module of its own, loaded only where there are videos (data/video.cpp). Whatever machine and
// however many threads decode, the pixels are the same.
#include "data/video_reader.h"

extern "C" {
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/video/ffmpeg.h"

namespace {

using namespace lh::ffmpeg;
using lh::Image;
using lh::ImageSize;

// EXIF's number of what the stream's matrix does: x' = ax + cy, y' = bx + dy.
int orientation_of(const AVStream& stream) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
  const AVCodecParameters& all = *stream.codecpar;
  const AVPacketSideData* found =
      av_packet_side_data_get(all.coded_side_data, all.nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  const uint8_t* data = found != nullptr ? found->data : nullptr;
  const size_t size = found != nullptr ? found->size : 0;
#else
  size_t size = 0;
  const uint8_t* data = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
#endif
  std::array<int32_t, 9> matrix{};
  if (data == nullptr || size < sizeof matrix) return 1;
  std::copy_n(data, sizeof matrix, reinterpret_cast<uint8_t*>(matrix.data()));
  const int64_t a = matrix[0], b = matrix[1], c = matrix[3], d = matrix[4];
  if (std::abs(a) + std::abs(d) >= std::abs(b) + std::abs(c)) {  // of any other angle the nearest
    if (a >= 0) return d >= 0 ? 1 : 4;
    return d >= 0 ? 2 : 3;
  }
  if (c >= 0) return b >= 0 ? 5 : 8;
  return b >= 0 ? 6 : 7;
}

double rate_of(const AVStream& stream) {
  for (const AVRational rate : {stream.avg_frame_rate, stream.r_frame_rate})
    if (rate.num > 0 && rate.den > 0) return av_q2d(rate);
  return 0;
}

bool is_full_range(const AVFrame& frame) {
  const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(frame.format));
  return frame.color_range == AVCOL_RANGE_JPEG || (name != nullptr && std::string_view(name).starts_with("yuvj"));
}

// Where the stream does not say it, players take what is usual for its size.
int matrix_of(const AVFrame& frame) {
  constexpr int rows_of_hd = 720;
  switch (frame.colorspace) {
    case AVCOL_SPC_RGB:
    case AVCOL_SPC_UNSPECIFIED:
    case AVCOL_SPC_RESERVED: return frame.height >= rows_of_hd ? SWS_CS_ITU709 : SWS_CS_ITU601;
    default: return frame.colorspace;
  }
}

class Reader final : public lh::VideoReader {
 public:
  Reader(const char* path, int64_t most_pixels) : file_(open_file(path)), format_(open(*file_)) {
    const std::string most = std::to_string(most_pixels);
    std::vector<Options> options(format_->nb_streams);
    std::vector<AVDictionary*> given;
    for (Options& one : options) {
      one.set("max_pixels", most.c_str());
      given.push_back(*one.address());
    }
    const int informed = avformat_find_stream_info(format_.get(), given.data());
    // The function has changed what it was given.
    for (size_t i = 0; i < options.size(); ++i) *options[i].address() = given[i];
    check(informed);
    if (file_->eof_reached != 0) said_at_end_ = last_words.data();  // a short file is read as a whole by now
    const int index = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    if (index < 0 || (format_->streams[index]->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0)
      refuse("there is no video in it: remove it");
    stream_ = format_->streams[index];
    const AVCodecID kind = stream_->codecpar->codec_id;
    if (kind == AV_CODEC_ID_NONE) damaged("what its frames are coded by is not there");
    const AVCodec* const decoder = &decoder_of(*stream_, "H.264 or VP9");
    for (unsigned i = 0; i < format_->nb_streams; ++i)
      if (static_cast<int>(i) != index) format_->streams[i]->discard = AVDISCARD_ALL;

    codec_.reset(there(avcodec_alloc_context3(decoder)));
    check(avcodec_parameters_to_context(codec_.get(), stream_->codecpar));
    codec_->pkt_timebase = stream_->time_base;
    codec_->max_pixels = most_pixels;
    codec_->flags |= AV_CODEC_FLAG_BITEXACT;  // transforms in whole numbers, the same on every processor
    codec_->thread_count = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
    check(avcodec_open2(codec_.get(), decoder, nullptr));
    size_ = {stream_->codecpar->width, stream_->codecpar->height};
    shape_ = stream_->codecpar->sample_aspect_ratio;
    has_sound_ = av_find_best_stream(format_.get(), AVMEDIA_TYPE_AUDIO, -1, -1, nullptr, 0) >= 0;
  }

  lh::VideoStream stream() const override {
    const AVDictionaryEntry* comment = av_dict_get(format_->metadata, "comment", nullptr, 0);
    return {square(), orientation_of(*stream_), rate_of(*stream_), has_sound_,
            comment != nullptr ? comment->value : ""};
  }

  bool next() override {
    last_words[0] = '\0';
    int status = 0;
    while ((status = avcodec_receive_frame(codec_.get(), frame_.get())) == AVERROR(EAGAIN)) feed();
    if (status == AVERROR_EOF) return false;
    if (status < 0) damaged_at(words(status));
    if (frame_->decode_error_flags != 0 || (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0) damaged_at("it is incomplete");
    const ImageSize size{frame_->width, frame_->height};
    if (decoded_ == 0) {
      size_ = size;
      shape_ = av_guess_sample_aspect_ratio(format_.get(), stream_, frame_.get());
    }
    if (size.width != size_.width || size.height != size_.height)
      refuse("frame " + std::to_string(decoded_) + " is " + text(size) + " pixels and those before it " + text(size_) +
             ": save it with frames of one size");
    ++decoded_;
    return true;
  }

  Image picture() override {
    const ImageSize to = square();
    const auto width = static_cast<int>(to.width), height = static_cast<int>(to.height);
    const auto format = static_cast<AVPixelFormat>(frame_->format);
    constexpr int exact = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT;
    scaler_.reset(sws_getCachedContext(scaler_.release(), frame_->width, frame_->height, format, width, height,
                                       AV_PIX_FMT_RGB24, exact, nullptr, nullptr, nullptr));
    if (scaler_ == nullptr)
      refuse(std::string("pixels of the kind ") + (av_get_pix_fmt_name(format) ? av_get_pix_fmt_name(format) : "?") +
             " cannot be made RGB: convert the video to yuv420p");
    constexpr int one = 1 << 16;  // contrast and saturation as they are; of RGB nothing is converted, which is refused
    sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(matrix_of(*frame_)), is_full_range(*frame_) ? 1 : 0,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, one, one);
    // Rows of its own, which are padded: the scaler may write past what is asked for.
    if (rows_ == nullptr) {
      rows_.reset(there(av_frame_alloc()));
      rows_->format = AV_PIX_FMT_RGB24;
      rows_->width = width;
      rows_->height = height;
      check(av_frame_get_buffer(rows_.get(), 0));
    }
    check(sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, frame_->height, rows_->data, rows_->linesize));
    Image image{to.width, to.height, {}};
    image.rgb.reserve(static_cast<size_t>(to.width * to.height * 3));
    for (int64_t y = 0; y < to.height; ++y) {
      const uint8_t* row = rows_->data[0] + y * rows_->linesize[0];
      image.rgb.insert(image.rgb.end(), row, row + to.width * 3);
    }
    return image;
  }

 private:
  static std::string text(ImageSize size) { return std::to_string(size.width) + " x " + std::to_string(size.height); }

  [[noreturn]] void damaged_at(const std::string& cause) const {
    damaged("frame " + std::to_string(decoded_) + ": " + cause);
  }

  // Pixels that are not square are stretched along one side; a hundredth is what a header was rounded by.
  ImageSize square() const {
    constexpr double rounded = 1.01;
    ImageSize size = size_;
    if (shape_.num <= 0 || shape_.den <= 0) return size;
    const double wide = av_q2d(shape_);
    if (wide > rounded) size.width = std::llround(static_cast<double>(size.width) * wide);
    if (1 / wide > rounded) size.height = std::llround(static_cast<double>(size.height) / wide);
    return size;
  }

  // The next packet of the stream to the decoder, or the end.
  void feed() {
    last_words[0] = '\0';
    int status = 0;
    do {
      av_packet_unref(packet_.get());
      status = av_read_frame(format_.get(), packet_.get());
      // An empty packet is the frame before it once more, and to the decoder it would be the end.
    } while (status == 0 && (packet_->stream_index != stream_->index || packet_->size == 0));
    if (status == AVERROR_EOF) {
      if (file_->error < 0) damaged_at(words(file_->error));
      // Some formats end where they are cut and only say so.
      if (last_words[0] != '\0') said_at_end_ = last_words.data();
      if (!said_at_end_.empty()) damaged_at(said_at_end_);
      check(avcodec_send_packet(codec_.get(), nullptr));
      return;
    }
    if (status < 0) damaged_at(words(status));
    if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) damaged_at("the file ends too early");
    status = avcodec_send_packet(codec_.get(), packet_.get());
    if (status < 0) damaged_at(words(status));
  }

  Owned<AVIOContext, avio_closep> file_;
  Owned<AVFormatContext, avformat_close_input> format_;
  Owned<AVCodecContext, avcodec_free_context> codec_;
  Owned<AVPacket, av_packet_free> packet_{there(av_packet_alloc())};
  Owned<AVFrame, av_frame_free> frame_{there(av_frame_alloc())}, rows_;
  Owned<SwsContext, sws_freeContext> scaler_;
  AVStream* stream_ = nullptr;
  ImageSize size_;      // of frames, as they are stored
  AVRational shape_{};  // of a pixel
  bool has_sound_ = false;
  int64_t decoded_ = 0;
  std::string said_at_end_;
};

}  // namespace

extern "C" lh::VideoReader* lora_video_open(const char* path, int64_t most_pixels) {
  listen();
  return new Reader(path, most_pixels);
}
