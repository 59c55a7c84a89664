// The rules of a tokenizer.json that come before the vocabulary: changing a text, and cutting it into words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/json_part.h"
#include "data/unicode.h"

namespace lh {

// A piece of the prompt on its way to a word.
struct TextPiece {
  icu::UnicodeString text;
  bool first = false;  // the prompt begins with it
};

using TextStep = std::function<void(icu::UnicodeString&)>;
using PieceStep = std::function<void(std::vector<TextPiece>&)>;

// The member `normalizer`. Throws lh::Error(Code::data) for every rule that is not known.
std::vector<TextStep> read_normalizer(const JsonPart& part);

struct PreTokenizer {
  std::vector<PieceStep> steps;
  bool byte_level = false;  // words are bytes, each written as one character
};
// The member `pre_tokenizer`.
PreTokenizer read_pre_tokenizer(const JsonPart& part);

// How vocabularies of bytes write a byte: printable Latin-1 as itself, the others from U+0100 on.
char16_t byte_character(unsigned char byte);
// The text's UTF-8 bytes, written so.
icu::UnicodeString byte_characters(const icu::UnicodeString& text);

// {"String": text} or {"Regex": expression}
TextPattern read_pattern(const JsonPart& part);

inline constexpr int max_rule_depth = 16;  // of sequences inside sequences

}  // namespace lh
