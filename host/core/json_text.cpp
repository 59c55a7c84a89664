#include "core/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lh {

std::string json_reason(const std::exception& error) {
  std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 9: ..."
  if (const size_t number = what.find("] "); what.starts_with("[json.exception.") && number != what.npos)
    what.remove_prefix(number + 2);
  if (constexpr std::string_view at = "parse error at "; what.starts_with(at)) what.remove_prefix(at.size());
  return std::string(what);
}

int json_levels(std::string_view text) {
  int level = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++level);
    if (c == ']' || c == '}') --level;
  }
  return deepest;
}

nlohmann::json parse_json(std::string_view text) {
  if (const int levels = json_levels(text); levels > most_json_levels)
    fail(Code::data, "{} levels of lists and objects, expected at most {}", levels, most_json_levels);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(Code::data, "not JSON: {}", json_reason(error));
  }
}

nlohmann::json json_or_nothing(std::string_view text) {
  if (json_levels(text) > most_json_levels) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace lh
