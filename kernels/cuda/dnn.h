// cuDNN: its version, its handle and the execution plans that were built, by what they compute.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda.h"

namespace lk::cuda {

// Throws LK_E_DEVICE where cuDNN is too old, or one of the versions that fail in a recorded graph (9.13.0 to 9.15.0:
// attention with more than 1024 keys reads outside its memory). Touches no GPU.
void require_usable_cudnn();

class DnnGraph;
class DnnPlan;
struct DnnAccept;
struct DnnBinding;

// Everything that a plan depends on: the operation, its shapes, types and flags.
using DnnKey = std::vector<int64_t>;

class Dnn {
 public:
  explicit Dnn(Cuda& cuda);
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;
  std::string version() const;  // "cuDNN 9.19.0"

  // The plan of the graph that `describe` makes, or nullptr where cuDNN has none. The first call for a key builds it,
  // which takes from milliseconds to seconds and none of the workspace: also while measuring or recording.
  const DnnPlan* plan(const DnnKey& key, const std::function<void(DnnGraph&)>& describe, const DnnAccept& accept);

  // Enqueues the plan; does nothing while measuring. `workspace` has plan.workspace() bytes.
  void run(const DnnPlan& plan, const std::vector<DnnBinding>& bindings, void* workspace);

 private:
  struct State;
  State& state();  // made at first use: a context that runs neither attention nor convolution does not load cuDNN

  Cuda& cuda_;
  std::unique_ptr<State> state_;
};

// Runs `body` and puts `what()`, the operation and its shapes, before the text of a failure.
template <class What, class Body>
void named_failures(What&& what, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.status(), what() + ": " + error.what());
  }
}

}  // namespace lk::cuda
