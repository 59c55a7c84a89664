// The latents of a clip's sound to what is heard, by the model's decoder and what lies behind it.
#pragma once

#include <memory>

#include "data/sound.h"
#include "encode/sound_encoding.h"
#include "run/program.h"
#include "run/weights.h"

namespace lh {

class SoundDecoder {
 public:
  // rows: of the latents.
  SoundDecoder(Device& device, const Model& model, int64_t rows);
  const VaeMemory& memory() const { return memory_; }
  // Loads the weights, unless another decoder of the same sound has; gives them for the next. The arena may be shared
  // with programs that do not run at the same time.
  std::shared_ptr<const Weights> bind(std::byte* arena, std::shared_ptr<const Weights> weights = nullptr);
  Sound decode(const HostTensor& latents);  // [1, rows, C]

 private:
  Device& device_;
  const Model& model_;
  SoundPlan made_;
  VaeMemory memory_;
  std::shared_ptr<const Weights> weights_;
  std::unique_ptr<Program> program_;
};

}  // namespace lh
