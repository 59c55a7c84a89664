// cuDNN's version rule, its handle and the cache of plans.
#include "cuda/dnn.h"

#include <map>

#include "cuda/dnn_graph.h"

namespace lk::cuda {

namespace {

std::string version_text(size_t version) {  // 91501 -> 9.15.1, before 9.0.0 8907 -> 8.9.7
  if (version < 90000) {
    return std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10) + "." +
           std::to_string(version % 100);
  }
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// A handle, a plan and a plan's first run load code and allocate, which the recording of this thread's stream forbids
// unless told that none of it is part of what is recorded.
class WhileRecording {
 public:
  WhileRecording() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "recording"); }
  ~WhileRecording() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  WhileRecording(const WhileRecording&) = delete;
  WhileRecording& operator=(const WhileRecording&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

void require_usable_cudnn() {
  constexpr size_t oldest = 90800, first_broken = 91300, last_broken = 91500;
  const size_t found = cudnnGetVersion();
  const std::string fix = ", expected 9.15.1 or newer (9.8.0 to 9.12.x also work). Install it (package cudnn9-cuda-" +
                          std::to_string(CUDART_VERSION / 1000) + ", or nvidia-cudnn-cu" +
                          std::to_string(CUDART_VERSION / 1000) + " from PyPI) where the loader finds libcudnn.so." +
                          std::to_string(CUDNN_MAJOR) + ", or put it on LD_LIBRARY_PATH";
  if (found / 10000 != CUDNN_MAJOR && found >= oldest)
    throw Error(LK_E_LIBRARY, "cuDNN " + version_text(found) + " was found, but this build is for cuDNN " +
                                  std::to_string(CUDNN_MAJOR) + fix);
  if (found < oldest) throw Error(LK_E_LIBRARY, "cuDNN " + version_text(found) + " is too old" + fix);
  if (found >= first_broken && found <= last_broken)
    throw Error(LK_E_LIBRARY,
                "cuDNN " + version_text(found) +
                    " cannot be used: its attention with more than 1024 keys reads memory that is not its "
                    "own when it runs in a CUDA graph" +
                    fix);
}

struct Dnn::State {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;                     // what the handle is set to
  std::map<DnnKey, std::unique_ptr<DnnPlan>> plans;  // nullptr: cuDNN has none

  State() { check(cudnnCreate(&handle), "cudnnCreate"); }
  ~State() {
    plans.clear();
    cudnnDestroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Dnn::Dnn(Cuda& cuda) : cuda_(cuda) {}
Dnn::~Dnn() = default;

std::string Dnn::version() const { return "cuDNN " + version_text(cudnnGetVersion()); }

Dnn::State& Dnn::state() {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  return *state_;
}

const DnnPlan* Dnn::plan(const DnnKey& key, const std::function<void(DnnGraph&)>& describe, const DnnAccept& accept) {
  if (state_ != nullptr) {
    if (const auto it = state_->plans.find(key); it != state_->plans.end()) return it->second.get();
  }
  const WhileRecording allow;
  State& own = state();
  std::unique_ptr<DnnPlan> plan;
  try {
    auto graph = std::make_unique<DnnGraph>();
    describe(*graph);
    plan = DnnPlan::find(std::move(graph), own.handle, accept);
  } catch (const DnnError& error) {
    if (!error.refused()) throw;
  }
  return (own.plans[key] = std::move(plan)).get();
}

void Dnn::run(const DnnPlan& plan, const std::vector<DnnBinding>& bindings, void* workspace) {
  if (cuda_.measuring()) return;
  const WhileRecording allow;
  State& own = state();
  if (own.stream != cuda_.stream()) {
    check(cudnnSetStream(own.handle, cuda_.stream()), "cudnnSetStream");
    own.stream = cuda_.stream();
  }
  plan.execute(own.handle, bindings, workspace);
  if (cuda_.notes != nullptr) cuda_.notes->ran.push_back("cuDNN engine " + std::to_string(plan.engine()));
}

}  // namespace lk::cuda
