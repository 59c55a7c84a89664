// FFmpeg's objects, errors and files, as the parts of this module use them.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <array>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

namespace lh::ffmpeg {

// Of what FFmpeg says a thread keeps the last line that is an error: its codes alone say little.
extern thread_local std::array<char, 256> last_words;
void listen();  // begins with none

std::string words(int status);
[[noreturn]] void refuse(const std::string& text);
[[noreturn]] void damaged(const std::string& cause);  // what was read
int check(int status);                                // else it is damaged

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    if constexpr (std::is_invocable_v<decltype(release), T*>)
      release(object);
    else
      release(&object);
  }
};
template <typename T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

template <typename T>
T* there(T* object) {
  return object != nullptr ? object : throw std::bad_alloc();
}

class Options {
 public:
  ~Options() { av_dict_free(&all_); }
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  void set(const char* key, const char* value) { check(av_dict_set(&all_, key, value, 0)); }
  AVDictionary** address() { return &all_; }

 private:
  AVDictionary* all_ = nullptr;
};

AVIOContext* open_file(const char* path);
// What it is, its content says and not its name. Only formats that hold a video themselves: a playlist would have other
// files opened.
AVFormatContext* open(AVIOContext& file);
const AVCodec& decoder_of(const AVStream& stream, const char* usual);  // usual: what to convert it to

}  // namespace lh::ffmpeg
