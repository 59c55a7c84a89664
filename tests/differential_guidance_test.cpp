// train.do_differential_guidance: the loss towards a place beyond the target, whatever its kind.
#include <gmock/gmock.h>

#include <cmath>

#include "support/toy_graphs.h"

namespace lh::test::differential_guidance_test {
namespace {

class DifferentialGuidance : public ToyGraphs {
 protected:
  static constexpr double factor = 3;
  DifferentialGuidance() {
    given_["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f});
    given_["loss_weight"] = HostTensor::from_floats({2}, std::vector<float>{0.5f, 2});
    given_["loss_delta"] = HostTensor::from_floats({2}, std::vector<float>{0.1f, 0.1f});
  }
  Tensors run(const Graph& graph) {
    complete(graph);
    return run_graph(device_, graph, given_);
  }
};

// Bit for bit what a step does whose target is there.
TEST_F(DifferentialGuidance, IsAStepWithAFartherTarget) {
  for (const std::string kind : {"mse", "l1", "huber"}) {
    SCOPED_TRACE(kind);
    const Tensors before = given_;
    const Tensors got = run(build({.loss = kind, .weighted = true, .differential_guidance = factor}).graph);
    const std::vector<float> said(got.at("output").as<float>().begin(), got.at("output").as<float>().end());
    for (size_t i = 0; i < said.size(); ++i) {
      float& target = given_.at("target").as<float>()[i];
      const float way = target - said[i], farther = static_cast<float>(factor) * way;
      target = said[i] + farther;
    }
    for (const auto& [name, tensor] : run(build({.loss = kind, .weighted = true}).graph))
      EXPECT_EQ(tensor.data, got.at(name).data) << name;
    given_ = before;
  }
}

// Of the squared error the gradient is so many times as large, and the loss the square of that.
TEST_F(DifferentialGuidance, MultipliesTheGradientOfSquares) {
  const Tensors got = run(build({.weighted = true, .differential_guidance = factor}).graph);
  const Tensors plain = run(build({.weighted = true}).graph);
  // Sums of float32, as in preserve_test.cpp.
  const double loss = double{plain.at("loss").as<float>()[0]} * factor * factor;
  EXPECT_NEAR(got.at("loss").as<float>()[0], loss, 64 * 0x1p-24 * loss);
  for (const auto& [name, tensor] : got) {
    if (!name.starts_with("grad.")) continue;
    double error = 0, size = 0;
    for (size_t i = 0; i < tensor.as<float>().size(); ++i) {
      const double wanted = factor * double{plain.at(name).as<float>()[i]};
      error += std::pow(double{tensor.as<float>()[i]} - wanted, 2);
      size += wanted * wanted;
    }
    EXPECT_GT(size, 0) << name;
    EXPECT_LE(std::sqrt(error), 256 * 0x1p-24 * std::sqrt(size)) << name;
  }
}

// What masks hide and what other prompts say is kept by a loss of its own.
TEST_F(DifferentialGuidance, LeavesWhatIsKeptAlone) {
  const auto kept = [&](double factor_of_learned) {
    const Tensors with = run(build({.preserves = true, .differential_guidance = factor_of_learned}).graph);
    const Tensors without = run(build({.differential_guidance = factor_of_learned}).graph);
    return double{with.at("loss").as<float>()[0]} - double{without.at("loss").as<float>()[0]};
  };
  const double plain = kept(1), beside = kept(factor);
  const double largest = double{run(build({.differential_guidance = factor}).graph).at("loss").as<float>()[0]};
  EXPECT_NEAR(beside, plain, 128 * 0x1p-24 * (largest + std::abs(plain)));
}

}  // namespace
}  // namespace lh::test::differential_guidance_test
