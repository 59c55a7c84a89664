// Edits of text. What is a word, a bracket or a line is told by characters alone, so that what was edited before, and
// is no JSON or YAML any more, can be edited on.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/mutate.h"

namespace lh::fuzz {
namespace {

struct Extent {
  size_t at = 0, length = 0;
};

bool in_word(char c) {
  return c != 0 && (std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.-+/", c) != nullptr);
}

std::vector<Extent> words_of(std::string_view text) {
  std::vector<Extent> words;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t begin = at;
    while (at < text.size() && in_word(text[at])) ++at;
    if (at > begin) words.push_back({begin, at - begin});
  }
  return words;
}

bool is_number(std::string_view word) {
  return word.find_first_not_of("0123456789.-+e") == word.npos && word.find_first_of("0123456789") != word.npos;
}

// What lies between each bracket and its other half.
std::vector<Extent> insides_of(std::string_view text) {
  std::vector<Extent> insides;
  std::vector<size_t> open;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '{' || text[at] == '[') open.push_back(at + 1);
    if ((text[at] == '}' || text[at] == ']') && !open.empty()) {
      insides.push_back({open.back(), at - open.back()});
      open.pop_back();
    }
  }
  return insides;
}

// Items between separators that stand in no bracket of their own.
std::vector<Extent> split(std::string_view text, Extent whole, char separator) {
  std::vector<Extent> items{{whole.at, 0}};
  int depth = 0;
  for (size_t at = whole.at; at < whole.at + whole.length; ++at) {
    if (separator == ',' && (text[at] == '{' || text[at] == '[')) ++depth;
    if (separator == ',' && (text[at] == '}' || text[at] == ']')) --depth;
    if (text[at] == separator && depth == 0)
      items.push_back({at + 1, 0});
    else
      ++items.back().length;
  }
  return items;
}

std::string replaced(std::string text, Extent where, std::string_view by) {
  return text.replace(where.at, where.length, by);
}

std::string edge_number(Random& random) {
  constexpr std::array others{"1.5", "1e3", "1e39", "-1e-400", "-0", ".5", "00"};
  if (below(8, random) == 0) return others[below(others.size(), random)];
  constexpr std::array bits{0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 53, 61, 62, 63, 64};
  const __int128 edge = (static_cast<__int128>(1) << bits[below(bits.size(), random)]) + below(3, random) - 1;
  return fmt::format("{}", below(4, random) == 0 ? -edge : edge);
}

std::string edit_number(std::string_view number, Random& random) {
  if (below(4, random) != 0) return edge_number(random);
  return number.starts_with('-') ? std::string(number.substr(1)) : fmt::format("-{}", number);
}

std::string edit_word(std::string_view word, std::string_view other, Random& random) {
  constexpr std::array paths{"/", "./", "../", "a/"};
  switch (below(6, random)) {
    case 0: return paths[below(paths.size(), random)] + std::string(word);
    case 1: return paths[below(paths.size(), random)];
    case 2: return "";
    default: return std::string(other);
  }
}

std::string edit_items(std::string text, Random& random) {
  const std::vector<Extent> insides = insides_of(text);
  const bool lines = insides.empty() || below(4, random) == 0;
  const char separator = lines ? '\n' : ',';
  const Extent whole = lines ? Extent{0, text.size()} : insides[below(insides.size(), random)];
  const std::vector<Extent> items = split(text, whole, separator);
  const size_t chosen = below(items.size(), random);
  const Extent item = items[chosen];
  const std::string copy = text.substr(item.at, item.length);
  switch (below(4, random)) {
    case 0: return text.insert(item.at, copy + separator);
    case 1: {  // once more under another name
      const size_t name = std::ranges::find_if(copy, in_word) - copy.begin();
      return text.insert(item.at, copy.substr(0, name) + "z" + copy.substr(name) + separator);
    }
    case 2: return text.erase(item.at, std::min(item.length + 1, whole.at + whole.length - item.at));
    default:
      if (chosen == 0) return text;
      const Extent before = items[chosen - 1];
      const std::string exchanged = copy + separator + text.substr(before.at, before.length);
      return replaced(std::move(text), {before.at, exchanged.size()}, exchanged);
  }
}

// Lists, or mappings, around a value, as many as are near a power of two.
std::string nest(std::string text, Extent value, Random& random) {
  const auto count = std::max<size_t>((size_t{1} << below(9, random)) + below(3, random), 2) - 1;
  if (value.at > 0 && text[value.at - 1] == '"' && value.at + value.length < text.size() &&
      text[value.at + value.length] == '"')
    value = {value.at - 1, value.length + 2};
  const bool lists = below(2, random) == 0;
  std::string before, after;
  for (size_t i = 0; i < count; ++i) {
    before += lists ? "[" : "{\"a\": ";
    after += lists ? ']' : '}';
  }
  return text.insert(value.at + value.length, after).insert(value.at, before);
}

}  // namespace

size_t below(size_t count, Random& random) { return count == 0 ? 0 : random() % count; }

std::string edit_text(const std::string& text, Random& random) {
  const std::vector<Extent> words = words_of(text);
  if (words.empty()) return text;
  const auto view = [&](Extent e) { return std::string_view(text).substr(e.at, e.length); };
  const Extent chosen = words[below(words.size(), random)], other = words[below(words.size(), random)];
  switch (below(8, random)) {
    case 0: return nest(text, chosen, random);
    case 1:
    case 2: return edit_items(text, random);
    case 3:
    case 4: return replaced(text, chosen, edit_word(view(chosen), view(other), random));
    default:
      std::vector<Extent> numbers;
      std::ranges::copy_if(words, std::back_inserter(numbers), [&](Extent e) { return is_number(view(e)); });
      if (numbers.empty()) return replaced(text, chosen, edit_word(view(chosen), view(other), random));
      const Extent number = numbers[below(numbers.size(), random)];
      return replaced(text, number, edit_number(view(number), random));
  }
}

}  // namespace lh::fuzz
