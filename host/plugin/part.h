// What a plugin makes of one of its descriptors and the user's options: an optimizer, sampler, schedule or adapter.
#pragma once

#include <string>

#include "plugin/call.h"
#include "plugin/options.h"
#include "plugin/registry.h"

namespace lh {

// The plugin's object and the texts of its options, whatever the descriptor's type.
class PartObject {
 public:
  PartObject(const PartObject&) = delete;
  PartObject& operator=(const PartObject&) = delete;

  void* self() const { return self_; }
  const PluginHost& host() const { return host_; }
  const std::string& options_text() const { return options_text_; }  // "betas=[0.9, 0.99] eps=1e-08", with defaults
  const std::string& options_yaml() const { return options_yaml_; }  // the same as OptionValues::yaml has them
  // To run one of its functions; errors name it: "optimizer 'adamw', build_pass".
  Call call(const std::string& function, GraphContext* graph = nullptr) const;

 protected:
  // What every descriptor has.
  struct Facts {
    const char* id;
    const lh_option* options;
    lh_status (*create)(const lh_host*, const lh_attr*, uint32_t, void**);
    void (*destroy)(void*);
  };
  PartObject(const char* kind, const PluginHost& host, const Facts& facts, const GivenOptions& given,
             const char* section);
  ~PartObject();

 private:
  const PluginHost& host_;
  void (*destroy_)(void*);
  std::string name_;  // "optimizer 'adamw'"
  std::string options_text_, options_yaml_;
  void* self_ = nullptr;
};

// Owns the plugin's object: created with checked options, destroyed with this.
template <typename Descriptor>
class Part : public PartObject {
 public:
  // kind: "optimizer"; section: "train.optimizer_params", where the options stand. Throws lh::Error(Code::config) for
  // an option that it does not have or refuses (LH_E_SETTING), (Code::plugin) for what breaks the contract.
  Part(const char* kind, const Offered<Descriptor>& offered, const GivenOptions& given, const char* section)
      : Part(kind, *offered.host, *offered.descriptor, given, section) {}

  const Descriptor* operator->() const { return &descriptor_; }  // its functions take self()

 private:
  Part(const char* kind, const PluginHost& host, const Descriptor& d, const GivenOptions& given, const char* section)
      : PartObject(kind, host, {d.id, d.options, d.create, d.destroy}, given, section), descriptor_(d) {}

  const Descriptor& descriptor_;
};

}  // namespace lh
