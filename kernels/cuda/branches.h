// Streams beside the compute stream, for operations that do not wait for each other (lk_fork). Branch 0 is the compute
// stream itself, so that its operations follow those in front of the fork like any other. Recorded, the others become
// branches of the graph.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <vector>

namespace lk::cuda {

class Branches {
 public:
  Branches() = default;
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;
  ~Branches();
  void fork(cudaStream_t main, int32_t count);
  cudaStream_t enter(int32_t branch);  // one beside `main` waits for what that had when it forked
  cudaStream_t join();                 // `main`, which waits for every branch that was entered beside it
  bool forked() const { return main_ != nullptr; }
  int32_t current() const { return forked() ? current_ : 0; }

 private:
  struct Branch {
    cudaStream_t stream = nullptr;
    cudaEvent_t end = nullptr;
    bool entered = false;
  };
  cudaStream_t main_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  int32_t current_ = 0;
  // By what they branch from, which in a recording they belong to till it ends: the body of a condition has its own.
  // From branch 1 on; made when they are first wanted.
  std::map<cudaStream_t, std::vector<Branch>> beside_;
};

}  // namespace lk::cuda
