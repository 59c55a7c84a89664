// lora-host ctl: asks a run that is training to do something, and shows its answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/commands.h"
#include "config/nearest.h"
#include "config/run_settings.h"
#include "core/error.h"

namespace lh {
namespace {

constexpr auto words = std::to_array<std::string_view>({"set", "save", "sample", "status", "pause", "resume", "stop"});

}  // namespace

int run_ctl(const Options& options) {
  const ControlRequest& request = options.request;
  if (std::ranges::find(words, request.command) == words.end()) {
    const std::string near = nearest_of(request.command, words);
    fail(Code::config, "ctl: unknown command {}. {}", request.command,
         near.empty() ? fmt::format("Known: {}", fmt::join(words, ", ")) : fmt::format("Did you mean {}?", near));
  }
  if (request.command == "set") (void)settings_of(request.arguments);
  if ((request.command == "set" || request.command == "sample") == request.arguments.empty())
    fail(Code::config, "ctl {}: {}. See lora-host ctl --help", request.command,
         request.arguments.empty() ? "expected what with" : "takes no arguments, found " + request.arguments.front());
  const ControlAnswer answer = ask_run(options.input, request);
  if (answer.status != 0) throw Error(static_cast<Code>(answer.status), answer.text);
  fmt::print("{}\n", answer.text);
  return 0;
}

}  // namespace lh
