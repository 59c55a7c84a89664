// Added tokens: texts that become one id wherever they stand, before the vocabulary is asked.
#pragma once

#include <unordered_map>
#include <vector>

#include "data/json_part.h"
#include "data/unicode.h"

namespace lh {

struct AddedToken {
  icu::UnicodeString text;
  int32_t id = 0;
  bool single_word = false;          // only where no part of a word touches it
  bool left = false, right = false;  // white space before and behind belongs to it
  bool normalized = false;           // looked for after the text was changed
};
// An object of `added_tokens`; the id is `id`, or a member of it where that is negative.
AddedToken read_added_token(const JsonPart& part, int32_t id = -1);

// Finds tokens in texts: the leftmost, and there the longest.
class AddedTokens {
 public:
  void add(AddedToken token);
  bool empty() const { return by_front_.empty(); }

  struct Part {
    int32_t begin, end, id;  // UTF-16 units; id -1: a text between tokens
  };
  // The whole text, part by part.
  std::vector<Part> cut(const icu::UnicodeString& text) const;

 private:
  const AddedToken* at(const icu::UnicodeString& text, int32_t place) const;
  std::unordered_map<char16_t, std::vector<AddedToken>> by_front_;  // by first unit, the longest first
};

}  // namespace lh
