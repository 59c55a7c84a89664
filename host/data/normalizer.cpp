// The normalizer of a tokenizer.json: what happens to a text before it is cut into words.
#include <unicode/uchar.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/text_rules.h"

namespace lh {
namespace {

const std::map<std::string, NormalForm> normal_forms = {
    {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};

icu::UnicodeString replaced(const icu::UnicodeString& text, const TextPattern& pattern,
                            const icu::UnicodeString& content) {
  icu::UnicodeString out;
  int32_t at = 0;
  for (const auto& [begin, end] : pattern.find_all(text)) {
    out.append(text, at, begin - at).append(content);
    at = end;
  }
  return out.append(text, at, text.length() - at);
}

icu::UnicodeString without_marks(const icu::UnicodeString& text) {
  icu::UnicodeString out;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1))
    if (const UChar32 c = text.char32At(i); (U_GET_GC_MASK(c) & U_GC_M_MASK) == 0) out.append(c);
  return out;
}

void add_steps(const JsonPart& part, int depth, std::vector<TextStep>& steps) {
  const std::string type = part["type"].text();
  if (type == "Sequence") {
    part.only({"type", "normalizers"});
    if (depth == max_rule_depth) part.wrong("there are too many sequences inside each other");
    for (const JsonPart& item : part["normalizers"].items()) add_steps(item, depth + 1, steps);
  } else if (const auto form = normal_forms.find(type); form != normal_forms.end()) {
    part.only({"type"});
    steps.emplace_back([form = form->second](icu::UnicodeString& text) { text = normalised(text, form); });
  } else if (type == "Lowercase") {
    part.only({"type"});
    steps.emplace_back([](icu::UnicodeString& text) { text = lower_case(text); });
  } else if (type == "StripAccents") {
    part.only({"type"});
    steps.emplace_back([](icu::UnicodeString& text) { text = without_marks(text); });
  } else if (type == "Strip") {
    part.only({"type", "strip_left", "strip_right"});
    steps.emplace_back([left = part.flag("strip_left", true), right = part.flag("strip_right", true)](
                           icu::UnicodeString& text) { text = stripped(text, left, right); });
  } else if (type == "Replace") {
    part.only({"type", "pattern", "content"});
    steps.emplace_back([pattern = read_pattern(part["pattern"]), content = from_utf8(part["content"].text())](
                           icu::UnicodeString& text) { text = replaced(text, pattern, content); });
  } else if (type == "Prepend") {
    part.only({"type", "prepend"});
    steps.emplace_back([front = from_utf8(part["prepend"].text())](icu::UnicodeString& text) {
      if (!text.isEmpty()) text.insert(0, front);
    });
  } else {
    part["type"].expected("one of Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend");
  }
}

}  // namespace

std::vector<TextStep> read_normalizer(const JsonPart& part) {
  std::vector<TextStep> steps;
  add_steps(part, 0, steps);
  return steps;
}

TextPattern read_pattern(const JsonPart& part) {
  part.only({"String", "Regex"});
  if (part.value().size() != 1) part.expected("either String or Regex");
  if (const auto text = part.find("String")) return TextPattern::literal(text->text());
  const JsonPart regex = part["Regex"];
  return TextPattern::regex(regex.text(), regex.where());
}

}  // namespace lh
