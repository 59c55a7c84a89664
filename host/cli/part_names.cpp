#include "cli/part_names.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "diffusion/sampler_choice.h"

namespace lh {
namespace {

// What `find` says of a name that is in no plugin; it names the key itself, which the reader does as well.
template <typename Find>
std::string text_of(std::string_view key, const Find& find) try {
  (void)find();
  return "";
} catch (const Error& error) {
  if (error.code() != Code::config) throw;
  std::string text = error.what();
  const std::string front = std::string(key) + ": ";
  return text.starts_with(front) ? text.substr(front.size()) : text;
}

}  // namespace

std::function<std::string(std::string_view, const std::string&)> part_names_of(const std::string& command,
                                                                               const Registry* registry) {
  static constexpr std::array<std::string_view, 4> training{"train", "check", "plan", "bench"};
  const bool trains = std::ranges::find(training, command) != training.end();
  if (registry == nullptr || (!trains && command != "sample")) return {};
  return [trains, registry](std::string_view key, const std::string& name) -> std::string {
    if (key == "sample.sampler") return unknown_sampler(*registry, name);
    if (key == "sample.scheduler") return unknown_schedule(*registry, name);
    if (trains && key == "train.optimizer") return text_of(key, [&] { return registry->optimizer(name); });
    if (trains && key == "network.type") return text_of(key, [&] { return registry->adapter(name); });
    return "";
  };
}

}  // namespace lh
