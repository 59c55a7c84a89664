// CLIP's tokenizer: Unicode clean-up, splitting into words, byte-pair encoding, and the frame of start, end and
// padding.
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <array>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "data/bpe.h"
#include "data/tokenizer.h"

namespace lh {
namespace {

constexpr int32_t start_id = 49406, end_id = 49407;
constexpr std::string_view start_text = "<|startoftext|>", end_text = "<|endoftext|>";

// NFC, each run of white space as one blank, lower case character by character (regardless of the context).
std::u32string clean(std::string_view utf8) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  const icu::UnicodeString text =
      U_SUCCESS(status)
          ? nfc->normalize(
                icu::UnicodeString::fromUTF8(icu::StringPiece(utf8.data(), static_cast<int32_t>(utf8.size()))), status)
          : icu::UnicodeString();
  if (U_FAILURE(status)) fail(Code::internal, "tokenizer: ICU cannot normalise text: {}", u_errorName(status));
  std::u32string out;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (u_isUWhiteSpace(c)) {
      if (out.empty() || out.back() != U' ') out += U' ';
    } else if (c == 0x130) {
      out += U"i\u0307";  // the one character whose lower case is two
    } else {
      out += static_cast<char32_t>(u_tolower(c));
    }
  }
  return out;
}

bool is_letter(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0; }
bool is_number(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0; }
bool is_other(char32_t c) { return c != U' ' && !is_letter(c) && !is_number(c); }

// Length of the word at the front of `text`, 0 at a blank: a contraction, letters, one digit or a run of other
// characters.
size_t word_length(std::u32string_view text) {
  constexpr std::array<std::u32string_view, 7> contractions = {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};
  for (const auto& word : contractions)
    if (text.starts_with(word)) return word.size();
  if (is_number(text[0])) return 1;
  const auto run = is_letter(text[0]) ? is_letter : is_other;
  size_t length = 0;
  while (length < text.size() && run(text[length])) ++length;
  return length;
}

// Length of a mark that became one only by lower case: a word boundary follows it.
size_t mark_length(std::u32string_view text) {
  for (const std::u32string_view mark : {U"<|startoftext|>", U"<|endoftext|>"})
    if (text.starts_with(mark)) return mark.size();
  return 0;
}

std::string to_utf8(std::u32string_view text) {
  std::string utf8;
  icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()), static_cast<int32_t>(text.size()))
      .toUTF8String(utf8);
  return utf8;
}

class ClipTokenizer : public Tokenizer {
 public:
  ClipTokenizer(const std::filesystem::path& folder, int32_t pad)
      : vocab_(folder / "vocab.json"), merges_(folder / "merges.txt"), pad_(pad) {
    std::error_code error;
    for (const auto& file : {vocab_, merges_})
      if (!std::filesystem::is_regular_file(file, error))
        fail(Code::data, "tokenizer: there is no file {} (install the tokenizer files of CLIP)", file.string());
  }

  std::vector<int32_t> encode(const std::string& utf8, int64_t length, int64_t* cut) const override {
    if (length < 2) fail(Code::internal, "tokenizer: CLIP needs room for 2 ids, not {}", length);
    std::vector<int32_t> content;
    append_text(utf8, content);
    const int64_t room = length - 2, lost = std::max<int64_t>(static_cast<int64_t>(content.size()) - room, 0);
    if (cut != nullptr) *cut = lost;
    content.resize(content.size() - static_cast<size_t>(lost));
    std::vector<int32_t> ids{start_id};
    ids.insert(ids.end(), content.begin(), content.end());
    ids.push_back(end_id);
    ids.resize(static_cast<size_t>(length), pad_);
    return ids;
  }

 private:
  // The two marks keep their own ids where they stand literally in a text.
  void append_text(std::string_view text, std::vector<int32_t>& ids) const {
    while (!text.empty()) {
      const size_t start = text.find(start_text), end = text.find(end_text), mark = std::min(start, end);
      append_words(clean(text.substr(0, mark)), ids);
      if (mark == std::string_view::npos) return;
      ids.push_back(start < end ? start_id : end_id);
      text.remove_prefix(mark + (start < end ? start_text : end_text).size());
    }
  }

  void append_words(std::u32string_view text, std::vector<int32_t>& ids) const {
    while (!text.empty()) {
      if (const size_t mark = mark_length(text); mark > 0) {
        bpe().encode(to_utf8(text.substr(0, 2)), ids);
        bpe().encode(to_utf8(text.substr(2, mark - 4)), ids);
        bpe().encode(to_utf8(text.substr(mark - 2, 2)), ids);
        text.remove_prefix(mark);
        continue;
      }
      const size_t length = word_length(text);
      if (length > 0) bpe().encode(to_utf8(text.substr(0, length)), ids);
      text.remove_prefix(std::max<size_t>(length, 1));
    }
  }

  // Read at the first use: runs whose text embeddings are cached never need it.
  const Bpe& bpe() const {
    std::call_once(loaded_, [this] { bpe_.emplace(vocab_, merges_); });
    return *bpe_;
  }

  std::filesystem::path vocab_, merges_;
  int32_t pad_;
  mutable std::once_flag loaded_;
  mutable std::optional<Bpe> bpe_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_clip_tokenizer(const std::filesystem::path& folder, int32_t pad) {
  return std::make_unique<ClipTokenizer>(folder, pad);
}

}  // namespace lh
