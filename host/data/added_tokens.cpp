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

void AddedTokens::add(AddedToken token) {
  if (token.text.isEmpty()) return;
  auto& list = by_front_[token.text.charAt(0)];
  list.push_back(std::move(token));
  std::ranges::stable_sort(list, [](const auto& a, const auto& b) { return a.text.length() > b.text.length(); });
}

const AddedToken* AddedTokens::at(const icu::UnicodeString& text, int32_t place) const {
  const auto list = by_front_.find(text.charAt(place));
  if (list == by_front_.end()) return nullptr;
  for (const AddedToken& token : list->second)
    if (text.compare(place, token.text.length(), token.text) == 0) return &token;
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
