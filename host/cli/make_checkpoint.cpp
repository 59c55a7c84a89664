// lora-host make-checkpoint: a checkpoint of synthetic weights with the tensors of a key list.
#include <fmt/core.h>

#include "cli/commands.h"
#include "core/error.h"
#include "io/synthetic.h"

namespace lh {

int run_make_checkpoint(const Options& options) {
  std::error_code none;
  if (std::filesystem::exists(options.output, none) && !options.tool.force)
    fail(Code::config, "make-checkpoint: {} is there already. Give another name, or --force to replace it",
         options.output.string());
  make_checkpoint(options.input, options.output, static_cast<uint64_t>(options.seed));
  fmt::print("{}\n", options.output.string());
  return 0;
}

}  // namespace lh
