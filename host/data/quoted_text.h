// "{quotes|Text "|". }" in the template of a tokenizer: the texts that a prompt has in quotes, which is what it asks to
// be written into the image, each with the words of the template before and behind it. A prompt without any gives none.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lh {

struct QuotesPlace {
  std::string whole;  // as it stands in the template, braces and all
  std::string before, behind;

  // The first one of a template; nothing: it has none, or what begins like one is not closed, or not in three parts.
  static std::optional<QuotesPlace> find(std::string_view text) {
    const size_t first = text.find(opening);
    if (first == text.npos) return std::nullopt;
    const size_t end = text.find('}', first), words = first + opening.size(), bar = text.find('|', words);
    if (end == text.npos || bar > end || text.substr(0, end).find('|', bar + 1) != text.npos) return std::nullopt;
    return QuotesPlace{std::string(text.substr(first, end + 1 - first)), std::string(text.substr(words, bar - words)),
                       std::string(text.substr(bar + 1, end - bar - 1))};
  }
  static bool begins_in(std::string_view text) { return text.find(opening) != text.npos; }

  // Straight double quotes first, then single and double ones that open and close, each kind in the prompt's order. A
  // text ends on its line. An apostrophe is no quote.
  std::string of(std::string_view prompt) const {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kinds{
        {{"\"", "\""}, {"\u2018", "\u2019"}, {"\u201c", "\u201d"}}};
    std::string all;
    for (const auto& [open, close] : kinds)
      for (size_t at = prompt.find(open); at != prompt.npos; at = prompt.find(open, at)) {
        at += open.size();
        const size_t end = prompt.find(close, at);
        if (end == prompt.npos || prompt.substr(at, end - at).find('\n') != prompt.npos) continue;
        all += before + std::string(prompt.substr(at, end - at)) + behind;
        at = end + close.size();
      }
    return all;
  }

 private:
  static constexpr std::string_view opening = "{quotes|";
};

}  // namespace lh
