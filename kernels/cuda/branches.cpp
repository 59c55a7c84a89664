#include "cuda/branches.h"

#include <utility>

#include "cuda/cuda.h"

namespace lk::cuda {

namespace {

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event of a branch");
  return event;
}

}  // namespace

Branches::~Branches() {
  for (const auto& [main, branches] : beside_)
    for (const Branch& branch : branches) {
      if (branch.end != nullptr) cudaEventDestroy(branch.end);
      if (branch.stream != nullptr) cudaStreamDestroy(branch.stream);
    }
  if (begin_ != nullptr) cudaEventDestroy(begin_);
}

void Branches::fork(cudaStream_t main, int32_t count) {
  if (begin_ == nullptr) begin_ = make_event();
  std::vector<Branch>& beside = beside_[main];
  while (beside.size() + 1 < static_cast<size_t>(count)) {
    Branch& branch = beside.emplace_back();
    check(cudaStreamCreateWithFlags(&branch.stream, cudaStreamNonBlocking), "stream of a branch");
    branch.end = make_event();
  }
  check(cudaEventRecord(begin_, main), "fork");
  main_ = main;
  current_ = 0;
}

cudaStream_t Branches::enter(int32_t branch) {
  current_ = branch;
  if (branch == 0) return main_;
  Branch& entered = beside_[main_][static_cast<size_t>(branch) - 1];
  if (!entered.entered) check(cudaStreamWaitEvent(entered.stream, begin_, 0), "branch");
  entered.entered = true;
  return entered.stream;
}

cudaStream_t Branches::join() {
  const cudaStream_t main = std::exchange(main_, nullptr);
  for (Branch& branch : beside_[main]) {
    if (!std::exchange(branch.entered, false)) continue;
    check(cudaEventRecord(branch.end, branch.stream), "join");
    check(cudaStreamWaitEvent(main, branch.end, 0), "join");
  }
  return main;
}

}  // namespace lk::cuda
