// The weights of a checkpoint in float32, in the order of files, for adapters that begin with what they say.
#pragma once

#include <functional>
#include <string>

#include "core/tensor.h"
#include "run/weights.h"

namespace lh {

struct BaseWeight {
  std::function<HostTensor(const std::string& weight)> read;
  // Enqueues the same to memory of the device. Without it, what `read` gives is uploaded.
  std::function<void(const std::string& weight, const lk_tensor& out)> put = {};
  explicit operator bool() const { return read != nullptr; }
};

// Of the checkpoint that `weights` were read from for `graph`. What they keep is taken where it is, if nothing was lost
// when it was read; anything else comes from the file again, in as many bytes as it has there. All must outlive it.
BaseWeight base_weights(Device& device, const Checkpoint& checkpoint, const Weights& weights, const Graph& graph);

}  // namespace lh
