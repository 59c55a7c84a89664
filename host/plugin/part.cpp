// Checks options, creates the object, and destroys it without an exception.
#include "plugin/part.h"

#include <fmt/core.h>

#include <vector>

#include "core/log.h"

namespace lh {

PartObject::PartObject(const char* kind, const PluginHost& host, const Facts& facts, const GivenOptions& given,
                       const char* section)
    : host_(host), destroy_(facts.destroy), name_(fmt::format("{} '{}'", kind, facts.id)) {
  const std::string owner = fmt::format("plugin '{}', {}", host.id, name_);
  const OptionValues values = check_options(read_options(facts.options, owner), given, section, name_);
  options_text_ = values.text();
  options_yaml_ = values.yaml();
  const std::vector<lh_attr> attrs = values.attrs();
  Call create = call("create");
  void* self = nullptr;
  const lh_status status =
      create.run([&] { return facts.create(&host, attrs.data(), static_cast<uint32_t>(attrs.size()), &self); });
  if (status == LH_E_SETTING && create.said_status() != LH_OK) fail(Code::config, "{}: {}", section, create.reason());
  create.check(status);
  self_ = self;
}

PartObject::~PartObject() {
  try {
    call("destroy").run([&] { destroy_(self_); });
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

Call PartObject::call(const std::string& function, GraphContext* graph) const {
  return Call(host_, name_ + ", " + function, nullptr, graph);
}

}  // namespace lh
