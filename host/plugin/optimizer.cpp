#include "plugin/optimizer.h"

#include <algorithm>

#include "core/error.h"
#include "passes/layout.h"

namespace lh {
namespace {

void check_options(const lh_optimizer& rule, const std::map<std::string, std::vector<double>>& options) {
  std::string known;
  for (const char* const* o = rule.options; o != nullptr && *o != nullptr; ++o)
    known += (known.empty() ? "" : ", ") + std::string(*o);
  for (const auto& [name, value] : options)
    if ((", " + known + ", ").find(", " + name + ", ") == std::string::npos)
      fail(Code::config, "train.optimizer_params.{}: optimizer '{}' has no such option. Known: {}", name, rule.id,
           known.empty() ? "none" : known);
}

}  // namespace

Optimizer::Optimizer(const Registry& registry, const std::string& id,
                     const std::map<std::string, std::vector<double>>& options)
    : id_(id), offered_(registry.optimizer(id)) {
  check_options(*offered_.descriptor, options);
  std::vector<lh_attr> attrs;
  for (const auto& [name, values] : options) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_F64, .count = static_cast<uint32_t>(values.size()), .v = {}};
    if (values.size() == 1) {
      attr.v.f = values[0];
    } else {
      attr.type = LH_ATTR_F64_LIST;
      attr.v.fs = values.data();
    }
    attrs.push_back(attr);
  }
  if (offered_.descriptor->create(offered_.host, attrs.data(), static_cast<uint32_t>(attrs.size()), &self_) != LH_OK)
    fail(Code::config, "train.optimizer_params: {}", offered_.host->failure);
  for (uint32_t i = 0; const char* name = offered_.descriptor->state(self_, i); ++i) states_.emplace_back(name);
}

Optimizer::~Optimizer() { offered_.descriptor->destroy(self_); }

Graph Optimizer::build_update(const Shape& parameter) const {
  Graph graph(DType::f32);
  lh_graph building{.host = offered_.host, .graph = &graph};
  const lh_desc desc = to_abi({DType::f32, parameter});
  const lh_status status = offered_.descriptor->build_update(self_, &building, &desc);
  if (!building.error.empty()) fail(Code::plugin, "optimizer '{}': {}", id_, building.error);
  if (status != LH_OK) fail(Code::plugin, "optimizer '{}': {}", id_, offered_.host->failure);
  settle_layouts(graph);
  for (const std::string& name : states_)
    if (!graph.outputs.contains(name)) fail(Code::plugin, "optimizer '{}' gives no new '{}'", id_, name);
  if (!graph.outputs.contains("p")) fail(Code::plugin, "optimizer '{}' gives no new 'p'", id_);
  // The tensors are bound to memory of exactly these sizes.
  const Desc tensor{DType::f32, parameter}, scalar{DType::f32, {1}};
  for (const auto& [name, value] : graph.inputs) {
    const Desc& want = name == "lr" || name == "step" ? scalar : tensor;
    if (graph.desc(value) != want)
      fail(Code::plugin, "optimizer '{}' declares the input '{}' as {}, expected {}", id_, name,
           graph.desc(value).text(), want.text());
  }
  for (const auto& [name, value] : graph.outputs) {
    if (name != "p" && std::ranges::find(states_, name) == states_.end())
      fail(Code::plugin, "optimizer '{}' gives '{}', which is neither p nor a state of it", id_, name);
    if (graph.desc(value) != tensor)
      fail(Code::plugin, "optimizer '{}' gives '{}' as {}, expected {}", id_, name, graph.desc(value).text(),
           tensor.text());
  }
  return graph;
}

}  // namespace lh
