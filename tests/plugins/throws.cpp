// An optimizer whose code throws what it should not: nothing may cross the border.
#include "lora_host/lora_host.hpp"

namespace {

class Throws : public lora_host::Optimizer {
 public:
  explicit Throws(const lora_host::Options&) {}
  void build_pass(lora_host::UpdateGraph&, uint32_t, const lora_host::Parameter& parameter) const override {
    if (parameter.dims.size() == 1) throw std::runtime_error("a vector");
    throw 42;
  }
};

constexpr lh_optimizer throws = lora_host::optimizer<Throws>("throws", nullptr);

}  // namespace

LORA_HOST_PLUGIN("throws", "0", "MIT", {LH_OPTIMIZER_FACTORY, &throws})
