// Names the call while it runs, for crashes, and turns status and text into an error.
#include "plugin/call.h"

#include "core/signals.h"

namespace lh {
namespace {

thread_local Call* current_call = nullptr;

}  // namespace

Call::Call(const PluginHost& plugin, const std::string& what, ModelContext* model, GraphContext* graph)
    : plugin_(plugin), label_(fmt::format("plugin '{}', {}", plugin.id, what)), model_(model), graph_(graph) {}

Call::~Call() = default;

Call::Running::Running(Call& call) : call_(call), outer_(current_call) {
  if (call.model_ != nullptr) {
    lock_ = std::unique_lock(call.model_->calls);
    call.model_->gate.open();
  }
  if (call.graph_ != nullptr) call.graph_->gate.open();
  current_call = &call;
  enter_foreign_code(call.label_.c_str());
}

Call::Running::~Running() {
  current_call = outer_;
  enter_foreign_code(outer_ == nullptr ? nullptr : outer_->label_.c_str());
  if (call_.graph_ != nullptr) call_.graph_->gate.close();
  if (call_.model_ != nullptr) call_.model_->gate.close();
}

Call* Call::current() { return current_call; }

void Call::fail(lh_status code, const char* text) {
  said_ = failure_ = text == nullptr ? "" : text;
  said_status_ = code;
}

void Call::doom(Code code, const std::string& text) {
  failure_ = text;
  if (!doom_) doom_.emplace(code, fmt::format("{}: {}", label_, text));
}

void Call::wrong(const std::string& text) const { lh::fail(Code::plugin, "{}: {}", label_, text); }

void Call::escaped(const std::string& text) const {
  check_handles();
  wrong("a C++ exception left the plugin: " + text);
}

Code Call::code_of(lh_status status) {
  switch (status) {
    case LH_E_MODEL: return Code::data;
    case LH_E_SETTING: return Code::config;
    default: return Code::plugin;
  }
}

void Call::check_handles() const {
  if (doom_) throw *doom_;
  for (Gate* gate : {model_ == nullptr ? nullptr : &model_->gate, graph_ == nullptr ? nullptr : &graph_->gate})
    if (const auto misuse = gate == nullptr ? std::nullopt : gate->take_report()) wrong(*misuse);
}

void Call::check() const {
  check_handles();
  if (said_) lh::fail(code_of(said_status_), "{}: {}", label_, *said_);
}

void Call::check(lh_status status) const {
  check_handles();
  if (graph_ != nullptr && graph_->error) lh::fail(graph_->error->code(), "{}: {}", label_, graph_->error->what());
  if (status == LH_OK) return;
  if (status > LH_OK || status < LH_E_SETTING) wrong(fmt::format("gave the unknown status {}", status));
  lh::fail(code_of(status), "{}: {}", label_,
           reason().empty() ? fmt::format("failed with status {} and does not say why", status) : reason());
}

}  // namespace lh
