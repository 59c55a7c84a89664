// Caption files and the trigger word.
#include "data/caption.h"

#include "core/error.h"
#include "core/utf8.h"
#include "io/file.h"

namespace lh {

std::string read_caption(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))
    fail(Code::data, "caption {}: expected a text file, found a folder, pipe or device", path.string());
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (size > max_caption_bytes)
    fail(Code::data, "caption {}: {} bytes exceed the limit of {} (is it a text file?)", path.string(), size,
         max_caption_bytes);
  return caption_of(read_text(path, max_caption_bytes), path);
}

std::string caption_of(std::string text, const std::filesystem::path& path) {
  if (const auto bad = invalid_utf8(text))
    fail(Code::data, "caption {}: byte {} (0x{:02x}) is not valid UTF-8 (save the file as UTF-8)", path.string(), *bad,
         static_cast<unsigned char>(text[*bad]));
  if (const size_t zero = text.find('\0'); zero != text.npos)
    fail(Code::data, "caption {}: byte {} is 0, which is in no text (a file of UTF-16? save it as UTF-8)",
         path.string(), zero);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text;
}

std::string replace_trigger(std::string text, const std::string& trigger_word) {
  constexpr std::string_view mark = "[trigger]";
  if (trigger_word.empty()) return text;
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += trigger_word.size())
    text.replace(at, mark.size(), trigger_word);
  return text;
}

std::string with_trigger(std::string caption, const std::string& trigger_word) {
  if (trigger_word.empty()) return caption;
  caption = replace_trigger(std::move(caption), trigger_word);
  if (caption.find(trigger_word) != std::string::npos) return caption;
  return caption.empty() ? trigger_word : trigger_word + ", " + caption;
}

}  // namespace lh
