// The pool, and the check that a handle is used where it may be.
#include "plugin/handles.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

namespace lh {
namespace {

// Its address tells threads apart.
thread_local const char this_thread = 0;

// A handle rests for a while before it is used again: meanwhile it is known as one that nobody may use.
template <typename Handle>
class Pool {
 public:
  Handle* take() {
    constexpr size_t resting = 64;
    const std::lock_guard lock(mutex_);
    if (free_.size() <= resting) return new Handle;
    Handle* handle = free_.front();
    free_.pop_front();
    return handle;
  }
  void give_back(Handle* handle) {
    const std::lock_guard lock(mutex_);
    free_.push_back(handle);
  }
  static Pool& instance() {
    static auto* pool = new Pool;  // outlives every static object that may still hold a handle
    return *pool;
  }

 private:
  std::mutex mutex_;
  std::deque<Handle*> free_;
};

}  // namespace

void Gate::open() { thread_.store(&this_thread, std::memory_order_relaxed); }
void Gate::close() { thread_.store(nullptr, std::memory_order_relaxed); }
bool Gate::is_open_here() const { return thread_.load(std::memory_order_relaxed) == &this_thread; }

void Gate::report(const std::string& misuse) {
  const std::lock_guard lock(mutex_);
  if (!misuse_) misuse_ = misuse;
}

std::optional<std::string> Gate::take_report() {
  const std::lock_guard lock(mutex_);
  return std::exchange(misuse_, std::nullopt);
}

size_t ModelContext::lower_bound(std::string_view name) const {
  const auto at = std::ranges::lower_bound(weights, name, std::less<>(),
                                           [](const auto* weight) { return std::string_view(weight->first); });
  return static_cast<size_t>(at - weights.begin());
}

const Desc* ModelContext::find(std::string_view name) const {
  const size_t at = lower_bound(name);
  return at < weights.size() && weights[at]->first == name ? &weights[at]->second : nullptr;
}

void GiveBack::operator()(ModelContext* handle) const {
  handle->weights.clear();
  handle->documents = nullptr;
  handle->settings.clear();
  handle->texts.clear();
  Pool<ModelContext>::instance().give_back(handle);
}

void GiveBack::operator()(GraphContext* handle) const {
  handle->model = nullptr;
  handle->graph = nullptr;
  handle->scopes = {0};
  handle->given.clear();
  handle->error.reset();
  Pool<GraphContext>::instance().give_back(handle);
}

ModelHandle open_context(const PluginHost& plugin, const std::map<std::string, Desc>& weights,
                         const Documents* documents, const std::map<std::string, std::string>& settings) {
  ModelHandle handle(Pool<ModelContext>::instance().take());
  handle->api = plugin.api;
  handle->plugin = &plugin;
  for (const auto& weight : weights) handle->weights.push_back(&weight);
  handle->documents = documents;
  handle->settings = settings;
  (void)handle->gate.take_report();
  return handle;
}

GraphHandle open_graph(const PluginHost& plugin, Graph& graph, const ModelContext* model,
                       const std::map<std::string, Value>& given) {
  GraphHandle handle(Pool<GraphContext>::instance().take());
  handle->api = plugin.api;
  handle->plugin = &plugin;
  handle->model = model;
  handle->graph = &graph;
  handle->given = given;
  (void)handle->gate.take_report();
  return handle;
}

}  // namespace lh
