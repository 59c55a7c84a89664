// Added tokens: texts that become one id wherever they stand, before the vocabulary is asked.
#pragma once

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
  AddedTokens() = default;
  // Of two with one text the first counts; empty ones do not.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Part {
    int32_t begin, end, id;  // UTF-16 units; id -1: a text between tokens
  };
  // The whole text, part by part.
  std::vector<Part> cut(const icu::UnicodeString& text) const;

 private:
  const AddedToken* at(const icu::UnicodeString& text, int32_t place) const;
  std::vector<AddedToken> tokens_;  // by text
  int32_t longest_ = 0;
};

}  // namespace lh
