#include "cli/output_file.h"

#include "core/error.h"

namespace lh {

void refuse_replacing(const Options& options, const std::string& word) {
  std::error_code none;
  if (std::filesystem::exists(options.output, none) && !options.tool.force)
    fail(Code::config, "{} {}: is there already. Give another name, or --force to replace it", word,
         options.output.string());
}

}  // namespace lh
