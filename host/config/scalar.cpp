#include "config/scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "core/lower.h"

namespace lh::yaml {
namespace {

template <typename T>
std::optional<T> read(const Node& node) {
  if (node.kind != Kind::scalar || node.quoted) return std::nullopt;
  std::string_view text = node.text;
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || (text[0] != '-' && text[0] != '.' && !std::isdigit(static_cast<unsigned char>(text[0]))))
    return std::nullopt;  // from_chars would take "inf" and "nan"
  if (text.starts_with('-') && text.size() > 1 && std::isalpha(static_cast<unsigned char>(text[1])))
    return std::nullopt;  // and "-inf"
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> integer_of(const Node& node) { return read<int64_t>(node); }
std::optional<double> number_of(const Node& node) { return read<double>(node); }

std::optional<bool> flag_of(const Node& node) {
  if (node.kind != Kind::scalar || node.quoted) return std::nullopt;
  const std::string word = lower(node.text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

bool asks_for_nothing(const Node& node) {
  if (node.kind != Kind::scalar)
    return node.items.empty() &&
           std::ranges::all_of(node.entries, [](const auto& entry) { return asks_for_nothing(entry.second); });
  if (const auto flag = flag_of(node)) return !*flag;
  return node.text.empty() || node.text == "0" || node.text == "0.0";
}

}  // namespace lh::yaml
