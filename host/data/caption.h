// Captions: reading a sidecar file and putting the trigger word in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lh {

inline constexpr int64_t max_caption_bytes = 64 << 10;

// Text of a caption file: byte order mark dropped, line ends at its end dropped. Throws lh::Error(Code::data) naming
// file and byte when it is too long or not UTF-8.
std::string read_caption(const std::filesystem::path& path);
// The same of the bytes of a file that were read; `path` is for the error.
std::string caption_of(std::string bytes, const std::filesystem::path& path);
// "[trigger]" becomes the trigger word, where there is one.
std::string replace_trigger(std::string text, const std::string& trigger_word);
// "[trigger]" becomes the trigger word; a caption without the word gets it in front ("word, caption"). Without a
// trigger word the caption stays as it is.
std::string with_trigger(std::string caption, const std::string& trigger_word);

}  // namespace lh
