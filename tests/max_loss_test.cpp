// train.max_loss: a batch whose loss is larger teaches nothing, others are as without it.
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "support/toy_graphs.h"

namespace lh::test::max_loss_test {
namespace {

class MaxLoss : public ToyGraphs {
 protected:
  MaxLoss() { given_["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f}); }
  Tensors run(const StepOptions& options) {
    const Graph graph = build(options).graph;
    complete(graph);
    return run_graph(device_, graph, given_);
  }
};

TEST_F(MaxLoss, ABatchBelowItIsAsWithoutIt) {
  const Tensors plain = run({});
  const float loss = plain.at("loss").as<float>()[0];
  ASSERT_GT(loss, 0);
  for (const auto& [name, tensor] : run({.max_loss = double{2 * loss}}))
    EXPECT_EQ(tensor.data, plain.at(name).data) << name;
}

TEST_F(MaxLoss, ABatchBeyondItTeachesNothing) {
  const float limit = run({}).at("loss").as<float>()[0] / 2;
  size_t gradients = 0;
  for (const auto& [name, tensor] : run({.max_loss = double{limit}})) {
    if (name == "loss") {
      EXPECT_EQ(tensor.as<float>()[0], limit);
    }
    if (!name.starts_with("grad.")) continue;
    ++gradients;
    for (const float value : tensor.as<float>()) ASSERT_EQ(value, 0) << name;
  }
  EXPECT_GT(gradients, 0U);
}

}  // namespace
}  // namespace lh::test::max_loss_test
