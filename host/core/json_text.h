// JSON that others wrote.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lh {

// Why a text is no JSON, in words for its author: an error of the JSON library without its number, "line 3, column 9:
// syntax error while parsing ...".
std::string json_reason(const std::exception& error);

// Levels of lists and objects of which a text may have so many: copies and messages of what was read go level by level
// on the stack.
inline constexpr int most_json_levels = 512;
int json_levels(std::string_view text);

// Throws lh::Error(Code::data), which says what is wrong and not where.
nlohmann::json parse_json(std::string_view text);
// Discarded where parse_json() would throw.
nlohmann::json json_or_nothing(std::string_view text);

}  // namespace lh
