// What the denoiser is told beside the noisy latents: the one table from the sources that a recipe names (InputSpec) to
// tensors, for training, sampling and benches alike.
//
// A prompt's conditioning are the outputs of the conditioner for it, [1, ...] each; of an output with a mask only the
// rows that are there, [1, n, ...]. In a batch they are padded with zeros to the length that the graph is built for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/sample.h"
#include "diffusion/objective.h"
#include "plugin/model.h"

namespace lh {

// One sample of a batch.
struct InputRow {
  const NamedTensors* conditioning = nullptr;  // of its prompt, by output of the conditioner
  NoiseLevel level;
  double guidance = 1;  // distilled guidance
  ImageNumbers sizes;
  NamedTensors images = {};  // by input, [1, ...]: see encode/image_inputs.h
};

// A fixed pattern of float32 numbers in place of real ones, for what does not look at them.
HostTensor made_up(const Shape& shape);

// The size by which a graph is told how many rows an input has: "text_length".
std::string length_size(const std::string& input);

class DenoiserInputs {
 public:
  explicit DenoiserInputs(const Recipe& recipe) : recipe_(recipe) {}

  // The inputs for a batch, by name; those from the conditioner only where the rows have conditioning. sizes: as the
  // denoiser's graph is built with.
  NamedTensors batch(const std::vector<InputRow>& rows, const Sizes& sizes) const;
  // Of them those that depend on the rows' prompts.
  NamedTensors of_prompts(const std::vector<InputRow>& rows, const Sizes& sizes) const;
  // Made-up conditioning for a graph without encoders: numbers in the shapes that the denoiser asks for.
  NamedTensors pattern(const Graph& denoiser) const;
  // The same for its further images, by input.
  NamedTensors pattern_images(const Sizes& sizes) const;

 private:
  HostTensor make(const std::string& name, const InputSpec& spec, const std::vector<InputRow>& rows,
                  const Sizes& sizes) const;
  const Recipe& recipe_;
};

}  // namespace lh
