// A training step of a small model, in memory of the size that the plan says, between guard bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "plugin/model.h"
#include "support/graph_run.h"
#include "train/step.h"

namespace lh::test {

// An arena between guard bytes.
class GuardedArena {
 public:
  static constexpr int64_t guard = 4096;
  GuardedArena(Device& device, int64_t bytes) : bytes_(bytes), memory_(device, bytes + 2 * guard, "guarded arena") {
    const std::vector<std::byte> pattern(static_cast<size_t>(bytes + 2 * guard), std::byte{0xA5});
    memory_.upload(0, pattern.data(), bytes + 2 * guard);
  }
  std::byte* data() const { return memory_.data() + guard; }
  void expect_untouched() const {
    std::vector<std::byte> seen(static_cast<size_t>(guard));
    for (const int64_t at : {int64_t{0}, guard + bytes_}) {
      memory_.download(at, seen.data(), guard);
      EXPECT_TRUE(std::ranges::all_of(seen, [](std::byte b) { return b == std::byte{0xA5}; }))
          << "something was written outside the arena";
    }
  }

 private:
  int64_t bytes_;
  DeviceMemory memory_;
};

// A model from a checkpoint whose base is kept as model.dtype says.
struct OpenedModel {
  OpenedModel(const std::filesystem::path& path, const std::string& dtype, const std::string& products = "full");
  Model model;
};

// The denoiser that the examples train.
std::filesystem::path toy_denoiser();

// LoRA with dropout on every target of the model; the weights of `streamed` blocks stay in host memory.
TrainGraph toy_graph(const Model& model, const ActivationChoice& choice, int64_t streamed = 0);
TrainGraph toy_graph(const Model& model, const ActivationChoice& choice, const Streaming& streaming);
std::vector<StreamableBlock> toy_blocks(const Model& model);

// Bytes of the weights of such a graph, which run_step sees taken; `rounded` of its matrices are kept in fewer bits,
// with so many elements and factors.
struct KeptWeights {
  int64_t bytes = 0, rounded = 0, elements = 0, factors = 0;
};
KeptWeights kept_weights(const Model& model);

// What it computes from, always the same.
StepInputs toy_inputs(const Graph& graph);

struct Ran {
  double loss = 0;
  Tensors gradients;
};

// One step in float32 on inputs that are always the same; the memory that was promised is the memory that was taken.
Ran run_step(const Model& model, const ActivationChoice& choice, int64_t streamed = 0);

}  // namespace lh::test
