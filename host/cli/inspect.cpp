// lora-host inspect: what a safetensors file or model directory holds.
#include "io/inspect.h"

#include <fmt/format.h>

#include "cli/commands.h"

namespace lh {

int run_inspect(const Options& options) {
  fmt::print("{}", inspect(options.input));
  return 0;
}

}  // namespace lh
