// An adapter plugin at work: what it makes of each layer, as graphs (lora_host/adapter.h).
#pragma once

#include <string>
#include <vector>

#include "passes/adapter_rule.h"
#include "plugin/options.h"
#include "plugin/registry.h"

namespace lh {

class Adapter : public AdapterRule {
 public:
  // Throws lh::Error(Code::config) for an adapter that no plugin has, or an option that it does not know or refuses.
  Adapter(const Registry& registry, const std::string& id, const GivenOptions& options);
  ~Adapter() override;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const std::string& id() const { return id_; }
  // Identifies the options: "factor=8 ...".
  const std::string& options_text() const { return options_text_; }
  const std::string& plugin_version() const { return offered_.host->version; }

  AdapterForm form(const AdapterLayer& layer) const override;
  std::vector<AdapterTensorSpec> tensors(const AdapterLayer& layer) const override;
  Value build_output(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const override;
  Value build_weight(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const override;
  Graph initial_values(const AdapterLayer& layer) const override;

 private:
  std::string call_name(const std::string& function, const AdapterLayer& layer) const;
  void destroy() noexcept;
  // The value that a build gives as `output`, which must be like `like`.
  using Build = std::function<lh_status(lh_graph*)>;
  Value built(Graph& graph, const std::string& function, const AdapterLayer& layer, const Values& given, int32_t scope,
              const std::string& output, const Desc& like, const Build& build) const;

  std::string id_, options_text_;
  Offered<lh_adapter> offered_;
  void* self_ = nullptr;
};

}  // namespace lh
