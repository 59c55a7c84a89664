// A model plugin's functions, each as one call.
#include "plugin/plugin_model.h"

#include "core/error.h"
#include "core/log.h"
#include "plugin/call.h"

namespace lh {
namespace {

// "build of role denoiser", or "model 'b', build of role denoiser" where the plugin is called otherwise.
std::string name_of(const Offered<lh_model>& offered, const std::string& what) {
  const std::string id = offered.descriptor->id;
  return id == offered.host->id ? what : fmt::format("model '{}', {}", id, what);
}

std::vector<lh_attr> attributes(const Sizes& sizes, const SizeLists& lists) {
  std::vector<lh_attr> attrs;
  for (const auto& [name, size] : sizes) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64, .count = 1, .v = {}};
    attr.v.i = size;
    attrs.push_back(attr);
  }
  for (const auto& [name, list] : lists) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64_LIST, .count = static_cast<uint32_t>(list.size()), .v = {}};
    attr.v.is = list.data();
    attrs.push_back(attr);
  }
  return attrs;
}

}  // namespace

PluginModel::PluginModel(const Offered<lh_model>& offered, const std::map<std::string, Desc>& weights,
                         const Documents* documents, const std::map<std::string, std::string>& settings)
    : offered_(offered), context_(open_context(*offered.host, weights, documents, settings)) {
  Call call(*offered.host, call_name("create"), context_.get());
  void* self = nullptr;
  const lh_status status = call.run([&] { return offered_.descriptor->create(context_.get(), &self); });
  const Code code = Call::code_of(status);
  if (code != Code::plugin && call.said_status() != LH_OK)
    fail(code, "{}", call.reason());  // the user's files: no more
  call.check(status);
  self_ = self;
  try {
    read_roles();
  } catch (...) {
    destroy();
    throw;
  }
}

PluginModel::~PluginModel() { destroy(); }

void PluginModel::destroy() noexcept {
  try {
    Call call(*offered_.host, call_name("destroy"), context_.get());
    call.run([&] { offered_.descriptor->destroy(self_); });
    call.check();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

std::string PluginModel::call_name(const std::string& what) const { return name_of(offered_, what); }

void PluginModel::read_roles() {
  constexpr uint32_t limit = 64;
  for (uint32_t i = 0;; ++i) {
    Call call(*offered_.host, call_name("role"), context_.get());
    const char* name = call.run([&] { return offered_.descriptor->role(self_, i); });
    call.check();
    if (name == nullptr) return;
    if (i == limit) call.wrong(fmt::format("the list of roles does not end: number {} is still there", i));
    roles_.emplace_back(name);
  }
}

std::string PluginModel::recipe() const {
  Call call(*offered_.host, call_name("recipe"), context_.get());
  const char* text = call.run([&] { return offered_.descriptor->recipe(self_); });
  call.check();
  if (text == nullptr) call.wrong("gave NULL, expected the recipe's YAML");
  return text;
}

void PluginModel::build(Graph& graph, const std::string& role, const Sizes& sizes, const SizeLists& lists,
                        const std::map<std::string, Value>& given) const {
  const GraphHandle handle = open_graph(*offered_.host, graph, context_.get(), given);
  const std::vector<lh_attr> attrs = attributes(sizes, lists);
  Call call(*offered_.host, call_name("build of role " + role), context_.get(), handle.get());
  call.check(call.run([&] {
    return offered_.descriptor->build(self_, context_.get(), handle.get(), role.c_str(), attrs.data(),
                                      static_cast<uint32_t>(attrs.size()));
  }));
}

Probe probe(const Offered<lh_model>& offered, const std::map<std::string, Desc>& weights, const Documents* documents) {
  const ModelHandle context = open_context(*offered.host, weights, documents);
  Call call(*offered.host, name_of(offered, "probe"), context.get());
  const int32_t confidence = call.run([&] { return offered.descriptor->probe(context.get()); });
  if (call.said_status() == LH_E_MODEL) return {0, call.reason()};
  call.check();
  if (confidence < 0 || confidence > 100) call.wrong(fmt::format("gave {}, expected 0 to 100", confidence));
  return {confidence, {}};
}

}  // namespace lh
