/* For programs that bring libraries of their own onto the GPU (NCCL): the stream behind a context's compute queue, so
 * that what such a library enqueues is in order with the operations of the context, and part of what it records. */
#ifndef LORA_KERNELS_STREAM_H
#define LORA_KERNELS_STREAM_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cudaStream_t of LK_COMPUTE, owned by the context. Ask anew between lk_fork and lk_join and between
 * lk_if_finite_begin and lk_if_finite_end, where operations go elsewhere. LK_E_UNSUPPORTED on the CPU, which has no
 * streams. */
LK_API lk_status lk_context_stream(lk_context* context, void** stream);

#ifdef __cplusplus
}
#endif

#endif
