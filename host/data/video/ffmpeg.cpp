#include "data/video/ffmpeg.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace lh::ffmpeg {

thread_local std::array<char, 256> last_words{};

namespace {

void keep_words(void*, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_ERROR) return;
  std::vsnprintf(last_words.data(), last_words.size(), format, arguments);
  for (size_t i = std::strlen(last_words.data()); i > 0 && std::strchr("\n. ", last_words[i - 1]) != nullptr; --i)
    last_words[i - 1] = '\0';
}

}  // namespace

void listen() {
  av_log_set_callback(keep_words);
  last_words[0] = '\0';
}

std::string words(int status) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(status, text.data(), text.size());
  const std::string line(last_words.data());
  return line.empty() ? std::string(text.data()) : text.data() + (": " + line);
}

void refuse(const std::string& text) { throw std::runtime_error(text); }

void damaged(const std::string& cause) {
  refuse("damaged or cut-short video: " + cause + " (save the video again or fetch the file anew)");
}

int check(int status) {
  if (status < 0) damaged(words(status));
  return status;
}

AVIOContext* open_file(const char* path) {
  AVIOContext* file = nullptr;
  const int status = avio_open(&file, (std::string("file:") + path).c_str(), AVIO_FLAG_READ);
  if (status < 0) refuse("it cannot be opened: " + words(status));
  return file;
}

AVFormatContext* open(AVIOContext& file) {
  Options options;
  options.set("protocol_whitelist", "file");
  options.set("format_whitelist", "mov,avi,matroska,asf,flv,m4v,mpeg,mpegts");
  AVFormatContext* format = there(avformat_alloc_context());
  format->pb = &file;
  const int status = avformat_open_input(&format, "", nullptr, options.address());
  if (status == AVERROR(EINVAL) || (status == AVERROR_INVALIDDATA && last_words[0] == '\0'))
    refuse("expected a video, found a file of another kind: convert or remove it");
  check(status);
  return format;
}

const AVCodec& decoder_of(const AVStream& stream, const char* usual) {
  const AVCodecID kind = stream.codecpar->codec_id;
  const AVCodec* decoder = avcodec_find_decoder(kind);
  if (decoder == nullptr)
    refuse(std::string(avcodec_get_name(kind)) + " is not among what this FFmpeg decodes: convert it to " + usual);
  return *decoder;
}

}  // namespace lh::ffmpeg
