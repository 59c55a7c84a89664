#include "data/made_with.h"

#include <fmt/core.h>

#include <sstream>

#include "io/lora_inspect.h"

namespace lh {

std::string made_with(const std::string& parameters) {
  constexpr size_t most_of_line = 1 << 14;
  if (parameters.empty()) return "  does not say how it was made\n";
  std::string out = "  made with\n";
  std::istringstream lines(parameters);
  for (std::string line; std::getline(lines, line);) out += fmt::format("    {}\n", printable(line, most_of_line));
  return out;
}

}  // namespace lh
