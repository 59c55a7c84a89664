// The sound of videos by FFmpeg: decoded, made two channels of float32, and brought to other rates.
#include "data/video_reader.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libswresample/swresample.h>
}

#include <algorithm>
#include <array>

#include "data/video/ffmpeg.h"

namespace {

using namespace lh::ffmpeg;

constexpr int channels = 2;
using Resampler = Owned<SwrContext, swr_free>;

// from: by value, as some versions of the function below take no constant.
Resampler resampler(AVChannelLayout from, AVSampleFormat format, int from_rate, int to_rate) {
  AVChannelLayout stereo = AV_CHANNEL_LAYOUT_STEREO;
  SwrContext* made = nullptr;
  check(swr_alloc_set_opts2(&made, &stereo, AV_SAMPLE_FMT_FLT, to_rate, &from, format, from_rate, 0, nullptr));
  Resampler owned(there(made));
  check(swr_init(owned.get()));
  return owned;
}

// Appends what the resampler gives for `count` samples of each channel; for none what it still holds.
void append(SwrContext& resampler, const uint8_t** from, int count, std::vector<float>& samples) {
  const int most = check(swr_get_out_samples(&resampler, count));
  const size_t before = samples.size();
  samples.resize(before + static_cast<size_t>(most * channels));
  auto* to = reinterpret_cast<uint8_t*>(samples.data() + before);
  const int made = check(swr_convert(&resampler, &to, most, from, count));
  samples.resize(before + static_cast<size_t>(made * channels));
}

double seconds(int64_t at, AVRational base) {
  return at == AV_NOPTS_VALUE ? 0 : static_cast<double>(at) * av_q2d(base);
}

class Reader final : public lh::SoundReader {
 public:
  Reader(const char* path) : file_(open_file(path)), format_(open(*file_)) {
    check(avformat_find_stream_info(format_.get(), nullptr));
    const int index = av_find_best_stream(format_.get(), AVMEDIA_TYPE_AUDIO, -1, -1, nullptr, 0);
    if (index < 0) return;
    stream_ = format_->streams[index];
    const int seen = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    if (seen >= 0) first_frame_ = seconds(format_->streams[seen]->start_time, format_->streams[seen]->time_base);
    for (unsigned i = 0; i < format_->nb_streams; ++i)
      if (static_cast<int>(i) != index) format_->streams[i]->discard = AVDISCARD_ALL;
    const AVCodec& decoder = decoder_of(*stream_, "AAC or Opus");
    codec_.reset(there(avcodec_alloc_context3(&decoder)));
    check(avcodec_parameters_to_context(codec_.get(), stream_->codecpar));
    codec_->pkt_timebase = stream_->time_base;
    codec_->flags |= AV_CODEC_FLAG_BITEXACT;
    check(avcodec_open2(codec_.get(), &decoder, nullptr));
  }

  bool there_is_one() const { return stream_ != nullptr; }
  int64_t rate() const override { return rate_; }
  double at() const override { return at_; }
  std::span<const float> samples() const override { return samples_; }

  bool next() override {
    last_words[0] = '\0';
    int status = 0;
    while ((status = avcodec_receive_frame(codec_.get(), frame_.get())) == AVERROR(EAGAIN)) feed();
    if (status == AVERROR_EOF) return false;
    if (status < 0) damaged("sound: " + words(status));
    const auto format = static_cast<AVSampleFormat>(frame_->format);
    if (mixer_ == nullptr) {
      rate_ = frame_->sample_rate;
      if (rate_ <= 0) damaged("sound: its rate is not there");
      // Channels without places, as some files have them, are those that as many usually are.
      AVChannelLayout layout = frame_->ch_layout;
      if (layout.order == AV_CHANNEL_ORDER_UNSPEC) av_channel_layout_default(&layout, layout.nb_channels);
      mixer_ = resampler(layout, format, frame_->sample_rate, frame_->sample_rate);
      format_of_first_ = format;
      channels_of_first_ = frame_->ch_layout.nb_channels;
      at_ = seconds(frame_->best_effort_timestamp, stream_->time_base) - first_frame_;
    } else {
      if (frame_->sample_rate != rate_ || format != format_of_first_ ||
          frame_->ch_layout.nb_channels != channels_of_first_)
        refuse("its sound changes its rate or its channels on the way: save it with those of one kind");
      at_ += static_cast<double>(samples_.size() / channels) / static_cast<double>(rate_);
    }
    samples_.clear();
    append(*mixer_, const_cast<const uint8_t**>(frame_->extended_data), frame_->nb_samples, samples_);
    return true;
  }

 private:
  // The next packet of the stream to the decoder, or the end.
  void feed() {
    int status = 0;
    do {
      av_packet_unref(packet_.get());
      status = av_read_frame(format_.get(), packet_.get());
    } while (status == 0 && (packet_->stream_index != stream_->index || packet_->size == 0));
    const bool end = status == AVERROR_EOF;
    if (!end && status < 0) damaged("sound: " + words(status));
    status = avcodec_send_packet(codec_.get(), end ? nullptr : packet_.get());
    if (status < 0) damaged("sound: " + words(status));
  }

  Owned<AVIOContext, avio_closep> file_;
  Owned<AVFormatContext, avformat_close_input> format_;
  Owned<AVCodecContext, avcodec_free_context> codec_;
  Owned<AVPacket, av_packet_free> packet_{there(av_packet_alloc())};
  Owned<AVFrame, av_frame_free> frame_{there(av_frame_alloc())};
  Resampler mixer_;  // to two channels
  AVStream* stream_ = nullptr;
  double first_frame_ = 0, at_ = 0;
  int64_t rate_ = 0;
  AVSampleFormat format_of_first_ = AV_SAMPLE_FMT_NONE;
  int channels_of_first_ = 0;
  std::vector<float> samples_;
};

}  // namespace

extern "C" lh::SoundReader* lora_sound_open(const char* path) {
  listen();
  auto reader = std::make_unique<Reader>(path);
  return reader->there_is_one() ? reader.release() : nullptr;
}

extern "C" void lora_sound_resample(std::span<const float> samples, int64_t from, int64_t to,
                                    std::vector<float>& resampled) {
  listen();
  const AVChannelLayout stereo = AV_CHANNEL_LAYOUT_STEREO;
  const Resampler change = resampler(stereo, AV_SAMPLE_FMT_FLT, static_cast<int>(from), static_cast<int>(to));
  const auto* begin = reinterpret_cast<const uint8_t*>(samples.data());
  append(*change, &begin, static_cast<int>(samples.size() / channels), resampled);
  append(*change, nullptr, 0, resampled);
}
