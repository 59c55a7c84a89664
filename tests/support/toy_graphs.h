// Graphs of the toy denoiser, run with made-up values where a test gives none.
#pragma once

#include <gtest/gtest.h>

#include "support/device.h"
#include "support/graph_run.h"
#include "support/toy_step.h"

namespace lh::test {

inline const SelectAdapter no_adapter = [](const std::string&) { return nullptr; };

class ToyGraphs : public testing::Test {
 protected:
  ToyGraphs() : opened_(toy_denoiser(), "auto"), device_(tested_device()) {
    network_.linear = 4;
    given_["loss_scale"] = HostTensor::from_floats({1}, std::vector<float>{1});
    given_["step"] = HostTensor::from_ints({1}, std::vector<int32_t>{9});
  }
  const Model& model() const { return opened_.model; }
  AdapterSelection select() const { return {network_, model().recipe(), 3}; }
  TrainGraph build(const StepOptions& options) { return build_train_graph(model(), sizes_, select(), options); }
  Graph forward(const SelectAdapter& adapters) { return build_sample_graph(model(), sizes_, adapters, DType::f32); }
  // What the graph asks for and nobody gave yet: weights of the model, made-up inputs and small adapters.
  void complete(const Graph& graph) {
    for (const auto& [name, v] : graph.params)
      if (!given_.contains(name))
        given_[name] = model().checkpoint().weights().contains(name) ? model().checkpoint().read_f32(name)
                                                                     : scaled(ramp(graph.desc(v).shape, ++seed_), 0.1f);
    for (const auto& [name, v] : graph.inputs)
      if (!given_.contains(name)) given_[name] = ramp(graph.desc(v).shape, ++seed_);
  }
  static HostTensor scaled(HostTensor tensor, float factor) {
    for (float& v : tensor.as<float>()) v *= factor;
    return tensor;
  }

  OpenedModel opened_;
  Device device_;
  NetworkConfig network_;
  const Sizes sizes_{{"batch", 2}, {"height", 16}, {"width", 16}, {"text_length", 32}};
  Tensors given_;
  int64_t seed_ = 0;
};

}  // namespace lh::test
