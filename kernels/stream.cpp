// The stream behind the compute queue, for libraries beside this one.
#include "dispatch.h"
#include "lora_kernels_stream.h"
#ifdef LORA_HAVE_CUDA
#include "cuda/cuda.h"
#endif

lk_status lk_context_stream(lk_context* context, void** stream) {
  return lk::guarded(context, "context_stream", [&] {
    lk::Backend& backend = *lk::require_context(context, "context_stream").backend;
    if (stream == nullptr) throw lk::Error(LK_E_INVALID, "context_stream: stream is NULL");
#ifdef LORA_HAVE_CUDA
    if (auto* cuda = dynamic_cast<lk::cuda::Cuda*>(&backend)) {
      *stream = cuda->stream();
      return;
    }
#endif
    throw lk::Error(LK_E_UNSUPPORTED, std::string("context_stream: the ") + backend.name() + " backend has no streams");
  });
}
