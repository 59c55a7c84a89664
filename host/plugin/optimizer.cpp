#include "plugin/optimizer.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "core/error.h"
#include "passes/layout.h"
#include "plugin/call.h"
#include "plugin/services.h"

namespace lh {

Optimizer::Optimizer(const Registry& registry, const std::string& id, const GivenOptions& options)
    : id_(id), offered_(registry.optimizer(id)) {
  const std::string owner = fmt::format("optimizer '{}'", id);
  const OptionValues values =
      check_options(read_options(offered_.descriptor->options, owner), options, "train.optimizer_params", owner);
  create(values.attrs());
  try {
    read_states();
  } catch (...) {
    destroy();
    throw;
  }
}

Optimizer::~Optimizer() { destroy(); }

std::string Optimizer::call_name(const std::string& function) const {
  return fmt::format("optimizer '{}', {}", id_, function);
}

void Optimizer::create(const std::vector<lh_attr>& options) {
  Call call(*offered_.host, call_name("create"));
  void* self = nullptr;
  const lh_status status = call.run([&] {
    return offered_.descriptor->create(offered_.host, options.data(), static_cast<uint32_t>(options.size()), &self);
  });
  if ((status == LH_E_INVALID || status == LH_E_SETTING) && call.said_status() != LH_OK)
    fail(Code::config, "train.optimizer_params: {}", call.reason());
  call.check(status);
  self_ = self;
}

void Optimizer::destroy() noexcept {
  try {
    Call call(*offered_.host, call_name("destroy"));
    call.run([&] { offered_.descriptor->destroy(self_); });
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
}

void Optimizer::read_states() {
  constexpr uint32_t limit = 64;
  for (uint32_t i = 0;; ++i) {
    Call call(*offered_.host, call_name("state"));
    const char* name = call.run([&] { return offered_.descriptor->state(self_, i); });
    call.check();
    if (name == nullptr) return;
    if (i == limit) call.wrong(fmt::format("the list of states does not end: number {} is still there", i));
    states_.emplace_back(name);
  }
}

Graph Optimizer::build_update(const Shape& parameter) const {
  Graph graph(DType::f32);
  const GraphHandle handle = open_graph(*offered_.host, graph);
  const lh_desc desc = to_abi({DType::f32, parameter});
  Call call(*offered_.host, call_name("build_update"), nullptr, handle.get());
  call.check(call.run([&] { return offered_.descriptor->build_update(self_, handle.get(), &desc); }));
  settle_layouts(graph);
  for (const std::string& name : states_)
    if (!graph.outputs.contains(name)) call.wrong(fmt::format("gives no new '{}'", name));
  if (!graph.outputs.contains("p")) call.wrong("gives no new 'p'");
  // The tensors are bound to memory of exactly these sizes.
  const Desc tensor{DType::f32, parameter}, scalar{DType::f32, {1}};
  for (const auto& [name, value] : graph.inputs) {
    const Desc& want = name == "lr" || name == "step" ? scalar : tensor;
    if (graph.desc(value) != want)
      call.wrong(
          fmt::format("declares the input '{}' as {}, expected {}", name, graph.desc(value).text(), want.text()));
  }
  for (const auto& [name, value] : graph.outputs) {
    if (name != "p" && std::ranges::find(states_, name) == states_.end())
      call.wrong(fmt::format("gives '{}', which is neither p nor a state of it", name));
    if (graph.desc(value) != tensor)
      call.wrong(fmt::format("gives '{}' as {}, expected {}", name, graph.desc(value).text(), tensor.text()));
  }
  return graph;
}

}  // namespace lh
