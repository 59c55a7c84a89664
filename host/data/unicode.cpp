// ICU behind the host's errors.
#include "data/unicode.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <cctype>

#include "core/error.h"

namespace lh {
namespace {

constexpr int32_t time_limit = 10000;  // of one search, in ICU's steps of about a millisecond

void check(UErrorCode status, const char* what) {
  if (U_FAILURE(status)) fail(Code::data, "tokenizer: ICU cannot {}: {}", what, u_errorName(status));
}

// What the two dialects of regular expressions spell alike but understand differently; empty: nothing found.
std::string ambiguous(std::string_view expression) {
  for (size_t i = 0; i + 1 < expression.size(); ++i) {
    if (expression[i] == '\\') {
      if (expression[i + 1] == 'h' || expression[i + 1] == 'H') return std::string(expression.substr(i, 2));
      ++i;
    } else if (expression.substr(i, 2) == "(?") {
      size_t end = i + 2;
      while (end < expression.size() && (std::isalpha(static_cast<unsigned char>(expression[end])) != 0)) ++end;
      const std::string_view flags = expression.substr(i + 2, end - i - 2);
      if (!flags.empty() && flags != "i") return std::string(expression.substr(i, end - i));
    }
  }
  return {};
}

}  // namespace

icu::UnicodeString from_utf8(std::string_view utf8) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(utf8.data(), static_cast<int32_t>(utf8.size())));
}

std::string to_utf8(const icu::UnicodeString& text) {
  std::string utf8;
  text.toUTF8String(utf8);
  return utf8;
}

icu::UnicodeString normalised(const icu::UnicodeString& text, NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normaliser = nullptr;
  switch (form) {
    case NormalForm::nfc: normaliser = icu::Normalizer2::getNFCInstance(status); break;
    case NormalForm::nfd: normaliser = icu::Normalizer2::getNFDInstance(status); break;
    case NormalForm::nfkc: normaliser = icu::Normalizer2::getNFKCInstance(status); break;
    case NormalForm::nfkd: normaliser = icu::Normalizer2::getNFKDInstance(status); break;
  }
  check(status, "load its normal forms");
  icu::UnicodeString out = normaliser->normalize(text, status);
  check(status, "normalise text");
  return out;
}

icu::UnicodeString lower_case(const icu::UnicodeString& text) {
  icu::UnicodeString out;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (c == 0x130) {
      out.append(u"i\u0307");  // the one character whose lower case is two
    } else {
      out.append(u_tolower(c));
    }
  }
  return out;
}

icu::UnicodeString stripped(const icu::UnicodeString& text, bool left, bool right) {
  int32_t begin = 0, end = text.length();  // white space lies in the first plane: one unit each
  while (left && begin < end && u_isUWhiteSpace(text.charAt(begin))) ++begin;
  while (right && begin < end && u_isUWhiteSpace(text.charAt(end - 1))) --end;
  return {text, begin, end - begin};
}

TextPattern TextPattern::literal(std::string_view utf8) {
  TextPattern out;
  out.literal_ = from_utf8(utf8);
  return out;
}

TextPattern TextPattern::regex(std::string_view utf8, const std::string& where) {
  if (const std::string part = ambiguous(utf8); !part.empty())
    fail(Code::data, "{}: `{}` in the expression `{}` is not supported", where, part, utf8);
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  TextPattern out;
  out.regex_.reset(icu::RegexPattern::compile(from_utf8(utf8), UREGEX_MULTILINE | UREGEX_UNIX_LINES, place, status));
  if (U_FAILURE(status))
    fail(Code::data, "{}: `{}` is no regular expression: {} at character {}", where, utf8, u_errorName(status),
         place.offset);
  return out;
}

std::vector<TextPattern::Range> TextPattern::find_all(const icu::UnicodeString& text) const {
  std::vector<Range> ranges;
  if (!regex_) {
    const int32_t length = literal_.length();
    for (int32_t at = text.indexOf(literal_); length > 0 && at >= 0; at = text.indexOf(literal_, at + length))
      ranges.push_back({at, at + length});
    return ranges;
  }
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(regex_->matcher(text, status));
  check(status, "start to search a text");
  matcher->setTimeLimit(time_limit, status);
  while (matcher->find(status)) ranges.push_back({matcher->start(status), matcher->end(status)});
  check(status, "finish searching a text (an expression with too many ways to match?)");
  return ranges;
}

}  // namespace lh
