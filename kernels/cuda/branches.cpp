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
  for (const Branch& branch : branches_) {
    if (branch.end != nullptr) cudaEventDestroy(branch.end);
    if (branch.stream != nullptr) cudaStreamDestroy(branch.stream);
  }
  if (begin_ != nullptr) cudaEventDestroy(begin_);
}

void Branches::fork(cudaStream_t main, int32_t count) {
  if (begin_ == nullptr) begin_ = make_event();
  while (branches_.size() < static_cast<size_t>(count)) {
    Branch& branch = branches_.emplace_back();
    check(cudaStreamCreateWithFlags(&branch.stream, cudaStreamNonBlocking), "stream of a branch");
    branch.end = make_event();
  }
  check(cudaEventRecord(begin_, main), "fork");
  main_ = main;
  current_ = 0;
}

cudaStream_t Branches::enter(int32_t branch) {
  Branch& entered = branches_[static_cast<size_t>(branch)];
  if (!entered.entered) check(cudaStreamWaitEvent(entered.stream, begin_, 0), "branch");
  entered.entered = true;
  current_ = branch;
  return entered.stream;
}

cudaStream_t Branches::join() {
  const cudaStream_t main = std::exchange(main_, nullptr);
  for (Branch& branch : branches_) {
    if (!std::exchange(branch.entered, false)) continue;
    check(cudaEventRecord(branch.end, branch.stream), "join");
    check(cudaStreamWaitEvent(main, branch.end, 0), "join");
  }
  return main;
}

}  // namespace lk::cuda
