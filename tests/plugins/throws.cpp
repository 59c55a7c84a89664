// An optimizer whose code throws what it should not: nothing may cross the border.
#include "lora_host/lora_host.hpp"

namespace {

class Throws : public lora_host::Optimizer {
 public:
  explicit Throws(const lora_host::Options&) {}
  const char* state(uint32_t) const override { return nullptr; }
  void build_update(lora_host::Graph&, const lora_host::Dims& parameter) const override {
    if (parameter.size() == 1) throw std::runtime_error("a vector");
    throw 42;
  }
};

constexpr lh_optimizer throws = lora_host::optimizer<Throws>("throws", nullptr);

}  // namespace

LORA_HOST_PLUGIN("throws", "0", "MIT", {LH_OPTIMIZER_FACTORY, &throws})
