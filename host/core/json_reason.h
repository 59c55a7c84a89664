// Why a text is no JSON, in words for its author.
#pragma once

#include <exception>
#include <string>

namespace lh {

// Of an error of the JSON library, without its number: "line 3, column 9: syntax error while parsing ...".
std::string json_reason(const std::exception& error);

}  // namespace lh
