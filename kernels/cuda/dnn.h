// cuDNN: its version, its handle and the execution plans that were built, by what they compute.
#pragma once

#include <memory>
#include <string>

#include "cuda/cuda.h"

namespace lk::cuda {

// Throws LK_E_DEVICE where cuDNN is too old, or one of the versions that fail in a recorded graph (9.13.0 to 9.15.0:
// attention with more than 1024 keys reads outside its memory).
void require_usable_cudnn();

class Dnn {
 public:
  explicit Dnn(Cuda& cuda);
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;
  std::string version() const;  // "cuDNN 9.19.0"

  struct State;
  State& state();  // made at first use: a context that runs neither attention nor convolution does not load cuDNN

 private:
  Cuda& cuda_;
  std::unique_ptr<State> state_;
};

}  // namespace lk::cuda
