// What a tool did to each module, as a table: ranks before and after, and the share of the change that is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lh {

struct ModuleLine {
  std::string name;
  int64_t before = 0, after = 0;  // ranks; before 0: there was none
  double kept = 1;                // share of the squared singular values
  double norm = 0;                // of the change before
};

// A line for each module and a last one for all: the share of all of their squares.
std::string report_table(const std::vector<ModuleLine>& lines);

}  // namespace lh
