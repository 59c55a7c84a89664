// lora-host ctl: asks a run that is training to do something, and shows its answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/commands.h"
#include "config/nearest.h"
#include "config/run_settings.h"
#include "core/error.h"
#include "core/utf8.h"

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
  for (const std::string& argument : request.arguments)
    if (const auto bad = invalid_utf8(argument))
      fail(Code::config, "ctl {}: byte {} (0x{:02x}) of {} is not valid UTF-8: write it in another way",
           request.command, *bad, static_cast<unsigned char>(argument[*bad]), argument);
  const ControlAnswer answer = ask_run(options.input, request);
  if (answer.status != 0) throw Error(static_cast<Code>(answer.status), answer.text);
  fmt::print("{}\n", answer.text);
  return 0;
}

}  // namespace lh
