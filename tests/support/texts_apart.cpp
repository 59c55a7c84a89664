// Graphs for as many rows as told, and what they give for samples that are the same but for their texts.
#include "support/texts_apart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "compile/compile.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_files.h"

namespace lh::test {
namespace {

struct Latents {
  const Model& model;
  int64_t height, width;

  // For texts of these lengths; what stands in `rows` beyond a text is `noise`.
  HostTensor denoised(const std::vector<int32_t>& lengths, int64_t rows, float noise) const {
    const auto batch = static_cast<int64_t>(lengths.size());
    const auto no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };
    Graph graph = build_sample_graph(
        model, {{"batch", batch}, {"height", height}, {"width", width}, {"text_length", rows}}, no_adapter, DType::f32);
    const auto input = [&](const char* name) { return HostTensor(graph.desc(graph.inputs.at(name))); };
    HostTensor latents = input("latents"), text = input("text");  // [B, h, w, C], [B, rows, D]
    const bool masked = graph.inputs.contains("text_mask");       // or told of lengths
    const int64_t sample = latents.desc.shape.numel() / batch, wide = text.desc.shape[2];
    const HostTensor one = ramp({sample}, 3), prompt = ramp({std::ranges::max(lengths) * wide + 1}, 5);
    std::vector<int32_t> mask(static_cast<size_t>(batch * rows), 0);
    std::ranges::fill(text.as<float>(), noise);
    for (int64_t b = 0; b < batch; ++b) {
      const int32_t length = lengths[static_cast<size_t>(b)];
      std::ranges::copy(one.as<float>(), latents.as<float>().begin() + b * sample);
      std::copy_n(prompt.as<float>().begin(), length * wide, text.as<float>().begin() + b * rows * wide);
      std::fill_n(mask.begin() + b * rows, length, 1);
    }
    Device device(tested_device());
    const Weights weights(device, model.checkpoint(), graph);
    const Externals bound = weights.bind(graph);
    OwnedProgram program(device, std::move(graph), bound, "texts of a batch");
    program->set_input("latents", latents);
    program->set_input("text", text);
    if (masked)
      program->set_input("text_mask", HostTensor::from_ints({batch, rows}, mask));
    else
      program->set_input("text_lengths", HostTensor::from_ints({batch}, lengths));
    HostTensor timestep(Desc{DType::f32, {batch}});
    std::ranges::fill(timestep.as<float>(), 0.4f);
    program->set_input("timestep", timestep);
    program->run();
    return program->output("output");
  }
};

// Products of another shape add in another order, which depends on the processor: some tens of float32's half units
// through the few blocks of a test's model. A filler of 3 that were seen is a thousand times that.
constexpr double other_order = 64 * 0x1p-24;

}  // namespace

void expect_texts_apart(const Model& model, const std::vector<std::pair<int64_t, int64_t>>& sizes, double differ) {
  for (const auto& [height, width] : sizes) {
    SCOPED_TRACE(testing::Message() << height << " x " << width);
    const Latents latents{model, height, width};
    const std::vector<int32_t> lengths{5, 31, 1};
    const HostTensor batch = latents.denoised(lengths, 40, 3.0f);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const HostTensor alone = latents.denoised({lengths[i]}, lengths[i], 0.0f);
      EXPECT_LT(relative_error(rows_of(batch, static_cast<int64_t>(i), 1), alone), other_order)
          << lengths[i] << " rows";
    }
    for (const int64_t other : {1, 2})
      EXPECT_GT(relative_error(rows_of(batch, 0, 1), rows_of(batch, other, 1)), differ);
    const HostTensor blank = latents.denoised({0, 4}, 4, 1.0f);
    for (const float value : blank.as<float>()) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace lh::test
