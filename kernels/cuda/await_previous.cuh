// The first statement of every kernel. Cuda::launch lets a kernel's blocks come while the operation in front of it in
// the stream still runs (programmatic dependent launch), as soon as that one's blocks have all begun: what a launch
// costs then passes beside it. Nothing may be read or written before this returns, but where the kernel in front is
// known: what that one does not touch; all before it have ended, for it has come here.
#pragma once

namespace lk::cuda {

__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // the next one's may come
#endif
}

}  // namespace lk::cuda
