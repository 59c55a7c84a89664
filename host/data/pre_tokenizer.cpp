// The pre_tokenizer of a tokenizer.json: cutting a text into words.
#include <array>
#include <string_view>
#include <utility>

#include "data/text_rules.h"

namespace lh {
namespace {

// What becomes of the matches of a pattern, and of the texts between them.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Segment {
  int32_t begin, end;
  bool match;
};

// The text from end to end: matches, and what lies between them.
std::vector<Segment> segments_of(const icu::UnicodeString& text, const TextPattern& pattern, bool invert) {
  std::vector<Segment> segments;
  int32_t at = 0;
  for (const auto& [begin, end] : pattern.find_all(text)) {
    if (at < begin) segments.push_back({at, begin, invert});
    if (begin < end) segments.push_back({begin, end, !invert});
    at = end;
  }
  if (at < text.length()) segments.push_back({at, text.length(), invert});
  return segments;
}

std::vector<Segment> joined(const std::vector<Segment>& segments, Behavior behavior) {
  std::vector<Segment> out;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const bool after_match = i > 0 && segments[i - 1].match;
    bool join = false;
    switch (behavior) {
      case Behavior::removed:
        if (segment.match) continue;
        break;
      case Behavior::isolated: break;
      case Behavior::merged_with_previous: join = segment.match && !after_match; break;
      // Of a run of matches only the last one is joined to what follows it.
      case Behavior::merged_with_next: join = !segment.match && after_match; break;
      case Behavior::contiguous: join = i > 0 && segment.match == after_match; break;
    }
    if (join && !out.empty()) {
      out.back().end = segment.end;
    } else {
      out.push_back(segment);
    }
  }
  return out;
}

void split(std::vector<TextPiece>& pieces, const TextPattern& pattern, Behavior behavior, bool invert = false) {
  std::vector<TextPiece> out;
  for (const TextPiece& piece : pieces)
    for (const Segment& segment : joined(segments_of(piece.text, pattern, invert), behavior))
      out.push_back({icu::UnicodeString(piece.text, segment.begin, segment.end - segment.begin),
                     piece.first && segment.begin == 0});
  pieces = std::move(out);
}

PieceStep split_step(TextPattern pattern, Behavior behavior, bool invert = false) {
  return [pattern = std::move(pattern), behavior, invert](std::vector<TextPiece>& pieces) {
    split(pieces, pattern, behavior, invert);
  };
}

PieceStep split_step(std::string_view expression, Behavior behavior, bool invert = false) {
  return split_step(TextPattern::regex(expression, "tokenizer"), behavior, invert);
}

Behavior behavior_of(const JsonPart& part) {
  const std::string name = part.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  part.expected("one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// Contractions, then letters, digits or other characters with at most one blank before them, then white space.
constexpr std::string_view byte_level_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void add_byte_level(const JsonPart& part, PreTokenizer& out) {
  part.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space", true))
    out.steps.emplace_back([](std::vector<TextPiece>& pieces) {
      for (TextPiece& piece : pieces)
        if (!piece.text.startsWith(u" ", 1)) piece.text.insert(0, u' ');
    });
  if (part.flag("use_regex", true)) out.steps.push_back(split_step(byte_level_words, Behavior::isolated));
  out.steps.emplace_back([](std::vector<TextPiece>& pieces) {
    for (TextPiece& piece : pieces) piece.text = byte_characters(piece.text);
  });
  out.byte_level = true;
}

void add_metaspace(const JsonPart& part, PreTokenizer& out) {
  part.only({"type", "replacement", "prepend_scheme", "add_prefix_space", "str_rep", "split"});
  const icu::UnicodeString mark = from_utf8(part["replacement"].text());
  if (mark.countChar32() != 1) part["replacement"].expected("one character");
  const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part["prepend_scheme"].expected("always, first or never");
  out.steps.emplace_back([mark, scheme](std::vector<TextPiece>& pieces) {
    for (TextPiece& piece : pieces) {
      piece.text.findAndReplace(icu::UnicodeString(u' '), mark);
      if (scheme != "never" && (scheme == "always" || piece.first) && !piece.text.startsWith(mark))
        piece.text.insert(0, mark);
    }
  });
  if (part.flag("split", true))
    out.steps.push_back(split_step(TextPattern::literal(to_utf8(mark)), Behavior::merged_with_next));
}

void add_steps(const JsonPart& part, int depth, PreTokenizer& out) {
  const std::string type = part["type"].text();
  if (type == "Sequence") {
    part.only({"type", "pretokenizers"});
    if (depth == max_rule_depth) part.wrong("there are too many sequences inside each other");
    for (const JsonPart& item : part["pretokenizers"].items()) add_steps(item, depth + 1, out);
  } else if (type == "Split") {
    part.only({"type", "pattern", "behavior", "invert"});
    out.steps.push_back(
        split_step(read_pattern(part["pattern"]), behavior_of(part["behavior"]), part.flag("invert", false)));
  } else if (type == "ByteLevel") {
    add_byte_level(part, out);
  } else if (type == "Metaspace") {
    add_metaspace(part, out);
  } else if (type == "Digits") {
    part.only({"type", "individual_digits"});
    const bool each = part.flag("individual_digits", false);
    out.steps.push_back(split_step(R"(\p{N})", each ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "Punctuation") {
    part.only({"type", "behavior"});
    const auto behavior = part.find("behavior");
    out.steps.push_back(split_step(R"([\p{P}$+<=>\^`|~])", behavior ? behavior_of(*behavior) : Behavior::isolated));
  } else if (type == "Whitespace") {
    part.only({"type"});
    out.steps.push_back(split_step(R"(\w+|[^\w\s]+)", Behavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    part.only({"type"});
    out.steps.push_back(split_step(R"(\s)", Behavior::removed));
  } else {
    part["type"].expected(
        "one of Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit");
  }
}

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonPart& part) {
  PreTokenizer out;
  add_steps(part, 0, out);
  return out;
}

char16_t byte_character(unsigned char byte) {
  static const std::array<char16_t, 256> characters = [] {
    std::array<char16_t, 256> list{};
    char16_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      list[static_cast<size_t>(b)] = printable ? static_cast<char16_t>(b) : next++;
    }
    return list;
  }();
  return characters[byte];
}

icu::UnicodeString byte_characters(const icu::UnicodeString& text) {
  icu::UnicodeString out;
  for (const char byte : to_utf8(text)) out.append(byte_character(static_cast<unsigned char>(byte)));
  return out;
}

}  // namespace lh
