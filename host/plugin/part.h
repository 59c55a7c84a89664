// What a plugin makes of one of its descriptors and the user's options: an optimizer, sampler, schedule or adapter.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "plugin/call.h"
#include "plugin/options.h"
#include "plugin/registry.h"

namespace lh {

// Owns the plugin's object: created with checked options, destroyed with this.
template <typename Descriptor>
class Part {
 public:
  // kind: "optimizer"; section: "train.optimizer_params", where the options stand. Throws lh::Error(Code::config) for
  // an option that it does not have or refuses (LH_E_SETTING), (Code::plugin) for what breaks the contract.
  Part(const char* kind, const Offered<Descriptor>& offered, const GivenOptions& given, const char* section)
      : offered_(offered), name_(fmt::format("{} '{}'", kind, offered.descriptor->id)) {
    const std::string owner = fmt::format("plugin '{}', {}", offered.host->id, name_);
    const OptionValues values = check_options(read_options(offered.descriptor->options, owner), given, section, name_);
    options_text_ = values.text();
    options_yaml_ = values.yaml();
    const std::vector<lh_attr> attrs = values.attrs();
    Call create = call("create");
    void* self = nullptr;
    const lh_status status = create.run([&] {
      return offered.descriptor->create(offered.host, attrs.data(), static_cast<uint32_t>(attrs.size()), &self);
    });
    if (status == LH_E_SETTING && create.said_status() != LH_OK) fail(Code::config, "{}: {}", section, create.reason());
    create.check(status);
    self_ = self;
  }

  ~Part() {
    try {
      call("destroy").run([&] { offered_.descriptor->destroy(self_); });
    } catch (const std::exception& error) {
      spdlog::error("{}", error.what());
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const Descriptor* operator->() const { return offered_.descriptor; }  // its functions take self()
  void* self() const { return self_; }
  const PluginHost& host() const { return *offered_.host; }
  const std::string& options_text() const { return options_text_; }  // "betas=[0.9, 0.99] eps=1e-08", with defaults
  const std::string& options_yaml() const { return options_yaml_; }  // the same as OptionValues::yaml has them
  // To run one of its functions; errors name it: "optimizer 'adamw', build_pass".
  Call call(const std::string& function, GraphContext* graph = nullptr) const {
    return Call(*offered_.host, name_ + ", " + function, nullptr, graph);
  }

 private:
  Offered<Descriptor> offered_;
  std::string name_;  // "optimizer 'adamw'"
  std::string options_text_, options_yaml_;
  void* self_ = nullptr;
};

}  // namespace lh
