// An adapter plugin at work: what it makes of each layer, as graphs (lora_host/adapter.h).
#pragma once

#include <string>
#include <vector>

#include "passes/adapter_rule.h"
#include "plugin/part.h"

namespace lh {

class Adapter : public AdapterRule {
 public:
  // Throws lh::Error(Code::config) for an adapter that no plugin has, or an option that it does not know or refuses.
  Adapter(const Registry& registry, const std::string& id, const GivenOptions& options);
  Adapter(const Offered<lh_adapter>& offered, const GivenOptions& options);

  std::string id() const { return part_->id; }
  // Identifies the options: "factor=8 ...".
  const std::string& options_text() const { return part_.options_text(); }
  const std::string& plugin_version() const { return part_.host().version; }
  const std::string& options_yaml() const { return part_.options_yaml(); }

  AdapterForm form(const AdapterLayer& layer) const override;
  std::vector<AdapterTensorSpec> tensors(const AdapterLayer& layer) const override;
  Value build_output(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const override;
  Value build_weight(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const override;
  Graph initial_values(const AdapterLayer& layer) const override;

 private:
  Call calling(const char* function, const AdapterLayer& layer, GraphContext* graph = nullptr) const;
  // The value that a build gives as `output`, which must be like `like`.
  using Build = std::function<lh_status(lh_graph*)>;
  Value built(Graph& graph, const char* function, const AdapterLayer& layer, const Values& given, int32_t scope,
              const std::string& output, const Desc& like, const Build& build) const;

  Part<lh_adapter> part_;
};

}  // namespace lh
