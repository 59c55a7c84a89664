// An optimizer over trained tensors that have memory, without a run around them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compile/adapters.h"
#include "run/update.h"

namespace lh::test {

class AdapterUpdate {
 public:
  AdapterUpdate(Device& device, const Registry& registry, const Adapters& adapters, const std::string& rule,
                const GivenOptions& options = {})
      : rule_(registry, rule, options),
        plan_({{"denoiser", &rule_}}, adapters.trained()),
        scalars_(device, 512, "scalars"),
        arena_(device, plan_.arena_bytes(), "update") {
    const AdapterTensor all = adapters.whole();
    const auto section = [&](const std::string& name) { return static_cast<std::byte*>(adapters.at(name, all)); };
    update_ = std::make_unique<Update>(device, plan_,
                                       UpdateMemory{.p = section("p"),
                                                    .g = section("g"),
                                                    .evaluation = section("p"),
                                                    .lr = {scalars_.data()},
                                                    .step = scalars_.data() + 256,
                                                    .arena = arena_.data()});
    update_->initialise();
  }
  Update& operator*() { return *update_; }
  const Update& operator*() const { return *update_; }
  Update* operator->() { return update_.get(); }
  void step(float lr, float number) {
    scalars_.upload(0, &lr, 4);
    scalars_.upload(256, &number, 4);
    update_->run();
  }
  // Every element of every state.
  void fill(const std::function<HostTensor(const Desc&)>& values) {
    for (const StoredState& state : update_->states()) update_->upload(state, values(state.desc));
  }

 private:
  Optimizer rule_;
  UpdatePlan plan_;
  DeviceMemory scalars_, arena_;
  std::unique_ptr<Update> update_;
};

}  // namespace lh::test
