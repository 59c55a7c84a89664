// Finds added tokens in a text, the longest at each place first, and cuts the text there.
#include "data/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

namespace lh {
namespace {

bool in_word(UChar32 c) {
  constexpr uint32_t word = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & word) != 0;
}

}  // namespace

AddedToken read_added_token(const JsonPart& part, int32_t id) {
  part.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
  AddedToken token;
  token.text = from_utf8(part["content"].text());
  token.id = id >= 0 ? id : static_cast<int32_t>(part["id"].number(0, INT32_MAX - 1));
  token.single_word = part.flag("single_word", false);
  token.left = part.flag("lstrip", false);
  token.right = part.flag("rstrip", false);
  token.normalized = part.flag("normalized", !part.flag("special", false));
  return token;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.isEmpty(); });
  std::ranges::stable_sort(tokens_, [](const auto& a, const auto& b) { return a.text < b.text; });
  const auto same = [](const auto& a, const auto& b) { return a.text == b.text; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());  // clang 14 knows no ranges::unique
  for (const AddedToken& token : tokens_) longest_ = std::max(longest_, token.text.length());
}

// The longest token that begins there. Of the tokens that sort no higher than the text it is the highest, or else as
// short as what the highest has in common with the text, of which the same is true: few comparisons, however many
// tokens a file lists.
const AddedToken* AddedTokens::at(const icu::UnicodeString& text, int32_t place) const {
  for (int32_t length = std::min(longest_, text.length() - place); length > 0;) {
    const auto above = std::partition_point(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
      return text.compare(place, length, token.text) >= 0;
    });
    if (above == tokens_.begin()) return nullptr;
    const AddedToken& highest = *std::prev(above);
    int32_t common = 0;
    while (common < highest.text.length() && common < length &&
           highest.text.charAt(common) == text.charAt(place + common))
      ++common;
    if (common == highest.text.length()) return &highest;
    length = common;
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::cut(const icu::UnicodeString& text) const {
  std::vector<Part> parts;
  int32_t done = 0;
  for (int32_t place = 0; place < text.length();) {
    const AddedToken* token = at(text, place);
    if (token == nullptr) {
      ++place;
      continue;
    }
    int32_t begin = place, end = place + token->text.length();
    place = end;
    if (token->single_word) {
      const bool left = begin > 0 && in_word(text.char32At(text.moveIndex32(begin, -1)));
      const bool right = end < text.length() && in_word(text.char32At(end));
      if (left || right) continue;
    }
    while (token->left && begin > done && u_isUWhiteSpace(text.charAt(begin - 1))) --begin;
    while (token->right && end < text.length() && u_isUWhiteSpace(text.charAt(end))) ++end;
    if (begin > done) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token->id});
    done = place = end;
  }
  if (done < text.length()) parts.push_back({done, text.length(), -1});
  return parts;
}

}  // namespace lh
