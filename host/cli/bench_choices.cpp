#include "cli/bench_choices.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lora_kernels_trace.h"

namespace lh {
namespace {

struct Taken {
  int64_t calls = 0;
  double milliseconds = 0;
};
using Kinds = std::map<std::tuple<std::string, std::string, std::string>, Taken>;  // op, kernels, what was passed over

// Of a device, as long as it lives.
class Tracing {
 public:
  explicit Tracing(const Device& device) : device_(device) {
    device.check(lk_set_trace(device.context(), keep, &kinds_), "trace");
  }
  ~Tracing() { lk_set_trace(device_.context(), nullptr, nullptr); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  const Kinds& kinds() const { return kinds_; }

 private:
  static void keep(void* user, const lk_call_trace* call) {
    Taken& taken = (*static_cast<Kinds*>(user))[{call->op, call->kernels, call->passed_over}];
    ++taken.calls;
    taken.milliseconds += call->milliseconds;
  }
  const Device& device_;
  Kinds kinds_;
};

}  // namespace

void print_choices(const Device& device, const std::function<void()>& run) {
  const Tracing tracing(device);
  run();
  std::vector<Kinds::const_iterator> rows;
  for (auto row = tracing.kinds().begin(); row != tracing.kinds().end(); ++row) rows.push_back(row);
  std::ranges::stable_sort(
      rows, [](const auto& a, const auto& b) { return a->second.milliseconds > b->second.milliseconds; });
  for (const auto& row : rows) {
    const auto& [op, kernels, passed_over] = row->first;
    const Taken& taken = row->second;
    fmt::print("choice                 {:>6} calls {:>10.3f} ms, {:>9.4f} each: {}: {}{}\n", taken.calls,
               taken.milliseconds, taken.milliseconds / static_cast<double>(taken.calls), op, kernels,
               passed_over.empty() ? "" : fmt::format(" (not {})", passed_over));
  }
}

}  // namespace lh
