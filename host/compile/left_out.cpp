#include "compile/left_out.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ops/ops.h"
#include "passes/layout.h"

namespace lh {
namespace {

// Why no adapter can be beside it; empty: it may, or it is no layer with a weight of its own.
std::string reason_of(const Node& node) {
  if (node.op == &conv3d_op) return "a convolution in three dimensions";
  if (node.op != &conv2d_op || node.attrs.i("groups") == 1) return "";
  return fmt::format("a convolution in {} groups", node.attrs.i("groups"));
}

}  // namespace

std::vector<LeftOut> left_out(const Graph& graph, const SelectAdapter& select) {
  constexpr size_t weight_input = 1;
  const std::map<Value, Value> reordered = reordered_weights(graph);
  std::vector<LeftOut> found;
  for (const Node& node : graph.nodes) {
    const std::string reason = reason_of(node);
    if (reason.empty()) continue;
    const Value weight = node.inputs[weight_input];
    const auto source = reordered.find(weight);
    const ValueInfo& info = graph.info(source == reordered.end() ? weight : source->second);
    const std::string module = info.kind == ValueKind::param ? module_of(info.name) : "";
    if (module.empty() || select(module) == nullptr) continue;
    if (std::ranges::find(found, module, &LeftOut::module) == found.end()) found.push_back({module, reason});
  }
  return found;
}

std::vector<std::string> left_out_lines(const std::vector<LeftOut>& modules, bool whole) {
  constexpr size_t few = 3;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const LeftOut& one : modules) by_reason[one.reason].push_back(one.module);
  std::vector<std::string> lines;
  for (const auto& [reason, names] : by_reason) {
    const size_t shown = whole ? names.size() : std::min(few, names.size());
    lines.push_back(fmt::format("{} {} no adapter: {}{} ({})", names.size(),
                                names.size() == 1 ? "module has" : "modules have",
                                fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                                shown < names.size() ? ", ..." : "", reason));
  }
  return lines;
}

}  // namespace lh
