#include "lora/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/lora_inspect.h"

namespace lh {

std::string report_table(const std::vector<ModuleLine>& lines) {
  size_t width = 6;
  for (const ModuleLine& line : lines) width = std::max(width, printable(line.name).size());
  std::string out;
  double all = 0, kept = 0;
  int64_t least = 0, most = 0;
  for (const ModuleLine& line : lines) {
    const std::string ranks =
        line.before > 0 ? fmt::format("{} -> {}", line.before, line.after) : fmt::to_string(line.after);
    out += fmt::format("  {:<{}}  rank {:<10}  {:.4f}% kept of |{:.4g}|\n", printable(line.name), width, ranks,
                       100 * line.kept, line.norm);
    all += line.norm * line.norm, kept += line.kept * line.norm * line.norm;
    least = least == 0 ? line.after : std::min(least, line.after);
    most = std::max(most, line.after);
  }
  const double share = all > 0 ? kept / all : 1;
  out += fmt::format("{} modules, rank {}; {:.4f}% of the squared change is kept\n", lines.size(),
                     least == most ? fmt::to_string(most) : fmt::format("{} to {}", least, most), 100 * share);
  return out;
}

}  // namespace lh
