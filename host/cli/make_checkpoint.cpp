// lora-host make-checkpoint: a checkpoint of synthetic weights with the tensors of a key list.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/output_file.h"
#include "io/synthetic.h"

namespace lh {

int run_make_checkpoint(const Options& options) {
  refuse_replacing(options, "make-checkpoint");
  make_checkpoint(options.input, options.output, static_cast<uint64_t>(options.seed));
  fmt::print("{}\n", options.output.string());
  return 0;
}

}  // namespace lh
