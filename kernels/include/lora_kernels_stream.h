/* For programs that are on the GPU beside this library (NCCL, PyTorch): the stream behind a context's compute queue, so
 * that what they enqueue is in order with the operations of the context, and part of what either of them records.
 *
 * Making a context makes its GPU the thread's current one; every later call leaves the current one as it finds it, so
 * that contexts of several GPUs may be used in turns by one thread. */
#ifndef LORA_KERNELS_STREAM_H
#define LORA_KERNELS_STREAM_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cudaStream_t of LK_COMPUTE, owned by the context or by who lent it. Ask anew between lk_fork and lk_join and
 * between lk_if_finite_begin and lk_if_finite_end, where operations go elsewhere. LK_E_UNSUPPORTED on the CPU, which
 * has no streams. */
LK_API lk_status lk_context_stream(lk_context* context, void** stream);

/* Operations go into this cudaStream_t of the context's device from here on, which stays the caller's and has to be
 * there until another one is given; NULL: into the context's own again. They come behind what the context has in
 * flight, unless the caller is recording the stream: then the context must have nothing in flight that they read, and
 * must have run operations of the same kind and size twice before (the first finds how much workspace they take). An
 * error between lk_fork and lk_join, within a condition, and while the context itself is recording. LK_E_UNSUPPORTED on
 * the CPU. */
LK_API lk_status lk_context_use_stream(lk_context* context, void* stream);

#ifdef __cplusplus
}
#endif

#endif
