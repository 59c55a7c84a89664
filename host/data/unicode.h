// Unicode text for tokenizers: ICU's strings, normal forms and regular expressions, with the errors of the host.
#pragma once

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lh {

icu::UnicodeString from_utf8(std::string_view utf8);  // broken bytes become U+FFFD
std::string to_utf8(const icu::UnicodeString& text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
icu::UnicodeString normalised(const icu::UnicodeString& text, NormalForm form);
// Character by character, regardless of the context.
icu::UnicodeString lower_case(const icu::UnicodeString& text);
// Without white space at the ends.
icu::UnicodeString stripped(const icu::UnicodeString& text, bool left = true, bool right = true);

// A text or a regular expression to look for.
class TextPattern {
 public:
  struct Range {
    int32_t begin = 0, end = 0;  // UTF-16 units
  };
  static TextPattern literal(std::string_view utf8);
  // The dialect is that of tokenizer.json: ^ and $ match at every line, as in Ruby. Throws lh::Error(Code::data) with
  // `where` for what is no expression, or what means something else there than here.
  static TextPattern regex(std::string_view utf8, const std::string& where);
  // From the front, without overlaps. An empty text to look for is nowhere.
  std::vector<Range> find_all(const icu::UnicodeString& text) const;

 private:
  icu::UnicodeString literal_;
  std::shared_ptr<const icu::RegexPattern> regex_;
};

}  // namespace lh
