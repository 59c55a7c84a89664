// A clip with its sound as an MP4 file, H.264 and AAC by FFmpeg: browsers and phones play that.
extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/video/ffmpeg.h"
#include "data/video_reader.h"

namespace {

using namespace lh::ffmpeg;
using lh::Image;

constexpr int channels = 2;

void must(int status, const char* what) {
  if (status < 0) refuse(std::string(what) + ": " + words(status));
}

const AVCodec& encoder(AVCodecID kind, const char* package) {
  const AVCodec* found = avcodec_find_encoder(kind);
  if (found == nullptr)
    refuse(std::string("this FFmpeg does not encode ") + avcodec_get_name(kind) + " (install one with " + package +
           ")");
  return *found;
}

// Of a container that was opened for writing into memory.
class File {
 public:
  File() {
    AVFormatContext* made = nullptr;
    must(avformat_alloc_output_context2(&made, nullptr, "mp4", nullptr), "MP4");
    format_.reset(made);
    format_->flags |= AVFMT_FLAG_BITEXACT;  // the same file each time
    must(avio_open_dyn_buf(&format_->pb), "MP4");
  }
  ~File() {
    if (format_->pb != nullptr) close();
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  AVFormatContext& format() { return *format_; }

  std::span<const std::byte> close() {
    uint8_t* bytes = nullptr;
    const int size = avio_close_dyn_buf(format_->pb, &bytes);
    format_->pb = nullptr;
    bytes_.reset(bytes);
    return {reinterpret_cast<const std::byte*>(bytes), static_cast<size_t>(size)};
  }

 private:
  Owned<AVFormatContext, avformat_free_context> format_;
  Owned<uint8_t, av_free> bytes_;
};

// One of its streams, and what encodes it.
class Stream {
 public:
  Stream(File& file, const AVCodec& kind) : file_(file), codec_(there(avcodec_alloc_context3(&kind))) {
    codec_->flags |= AV_CODEC_FLAG_BITEXACT;
    if ((file.format().oformat->flags & AVFMT_GLOBALHEADER) != 0) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  }
  AVCodecContext& codec() { return *codec_; }

  void open() {
    must(avcodec_open2(codec_.get(), codec_->codec, nullptr), codec_->codec->name);
    stream_ = there(avformat_new_stream(&file_.format(), nullptr));
    stream_->time_base = codec_->time_base;
    must(avcodec_parameters_from_context(stream_->codecpar, codec_.get()), "MP4");
  }

  // None: nothing comes any more.
  void encode(const AVFrame* frame) {
    must(avcodec_send_frame(codec_.get(), frame), codec_->codec->name);
    int status = 0;
    while ((status = avcodec_receive_packet(codec_.get(), packet_.get())) == 0) {
      if (packet_->duration == 0 && codec_->codec_type == AVMEDIA_TYPE_VIDEO)
        packet_->duration = 1;  // the last one's, too
      av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
      packet_->stream_index = stream_->index;
      must(av_interleaved_write_frame(&file_.format(), packet_.get()), "MP4");
    }
    if (status != AVERROR(EAGAIN) && status != AVERROR_EOF) must(status, codec_->codec->name);
  }

 private:
  File& file_;
  Owned<AVCodecContext, avcodec_free_context> codec_;
  Owned<AVPacket, av_packet_free> packet_{there(av_packet_alloc())};
  AVStream* stream_ = nullptr;
};

void open_pictures(Stream& stream, const lh::Movie& movie) {
  AVCodecContext& codec = stream.codec();
  codec.width = static_cast<int>(movie.frames.front().width);
  codec.height = static_cast<int>(movie.frames.front().height);
  codec.pix_fmt = AV_PIX_FMT_YUV420P;
  codec.framerate = av_d2q(movie.fps, 100'000);
  codec.time_base = av_inv_q(codec.framerate);
  codec.colorspace = AVCOL_SPC_BT709;
  codec.color_primaries = AVCOL_PRI_BT709;
  codec.color_trc = AVCOL_TRC_BT709;
  codec.color_range = AVCOL_RANGE_MPEG;
  av_opt_set(codec.priv_data, "crf", "16", 0);  // of x264: hardly to be told from the frames; others have none
  stream.open();
}

void write_pictures(Stream& stream, std::span<const Image> frames) {
  const AVCodecContext& codec = stream.codec();
  const Owned<SwsContext, sws_freeContext> scaler(
      there(sws_getContext(codec.width, codec.height, AV_PIX_FMT_RGB24, codec.width, codec.height, codec.pix_fmt,
                           SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT, nullptr, nullptr, nullptr)));
  constexpr int one = 1 << 16;  // contrast and saturation as they are
  sws_setColorspaceDetails(scaler.get(), sws_getCoefficients(SWS_CS_DEFAULT), 1, sws_getCoefficients(SWS_CS_ITU709), 0,
                           0, one, one);
  int64_t number = 0;
  for (const Image& image : frames) {
    const Owned<AVFrame, av_frame_free> frame(there(av_frame_alloc()));
    frame->format = codec.pix_fmt;
    frame->width = codec.width;
    frame->height = codec.height;
    must(av_frame_get_buffer(frame.get(), 0), "MP4");
    const uint8_t* rows = image.rgb.data();
    const int pitch = codec.width * 3;
    must(sws_scale(scaler.get(), &rows, &pitch, 0, codec.height, frame->data, frame->linesize), "MP4");
    frame->pts = number++;
    stream.encode(frame.get());
  }
  stream.encode(nullptr);
}

void open_sound(Stream& stream, int64_t rate) {
  constexpr int64_t bits_a_second = 192'000;
  AVCodecContext& codec = stream.codec();
  codec.sample_rate = static_cast<int>(rate);
  codec.sample_fmt = AV_SAMPLE_FMT_FLTP;
  codec.bit_rate = bits_a_second;
  codec.time_base = {1, codec.sample_rate};
  av_channel_layout_default(&codec.ch_layout, channels);
  stream.open();
}

void write_sound(Stream& stream, std::span<const float> sound) {
  const AVCodecContext& codec = stream.codec();
  const auto count = static_cast<int64_t>(sound.size() / channels);
  for (int64_t at = 0; at < count; at += codec.frame_size) {
    const Owned<AVFrame, av_frame_free> frame(there(av_frame_alloc()));
    frame->format = codec.sample_fmt;
    frame->sample_rate = codec.sample_rate;
    frame->nb_samples = static_cast<int>(std::min<int64_t>(codec.frame_size, count - at));
    must(av_channel_layout_copy(&frame->ch_layout, &codec.ch_layout), "MP4");
    must(av_frame_get_buffer(frame.get(), 0), "MP4");
    for (int c = 0; c < channels; ++c)
      for (int i = 0; i < frame->nb_samples; ++i)
        reinterpret_cast<float*>(frame->data[c])[i] = sound[static_cast<size_t>((at + i) * channels + c)];
    frame->pts = at;
    stream.encode(frame.get());
  }
  stream.encode(nullptr);
}

}  // namespace

extern "C" void lora_movie_write(const lh::Movie& movie, std::vector<std::byte>& bytes) {
  listen();
  File file;
  Stream pictures(file, encoder(AV_CODEC_ID_H264, "libx264")), sound(file, encoder(AV_CODEC_ID_AAC, "AAC"));
  open_pictures(pictures, movie);
  open_sound(sound, movie.rate);
  if (!movie.comment.empty()) must(av_dict_set(&file.format().metadata, "comment", movie.comment.c_str(), 0), "MP4");
  must(avformat_write_header(&file.format(), nullptr), "MP4");
  write_pictures(pictures, movie.frames);
  write_sound(sound, movie.sound);
  must(av_write_trailer(&file.format()), "MP4");
  const std::span<const std::byte> all = file.close();
  bytes.assign(all.begin(), all.end());
}
