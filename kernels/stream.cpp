// The stream behind the compute queue, for libraries beside this one.
#include "dispatch.h"
#include "lora_kernels_stream.h"
#ifdef LORA_HAVE_CUDA
#include "cuda/cuda.h"
#endif

namespace {

// Runs body(cuda) for a call that is named in its errors.
template <class Body>
lk_status with_streams(lk_context* context, const char* what, [[maybe_unused]] const Body& body) {
  return lk::guarded(context, what, [&] {
    lk::Backend& backend = *lk::require_context(context, what).backend;
#ifdef LORA_HAVE_CUDA
    if (auto* cuda = dynamic_cast<lk::cuda::Cuda*>(&backend)) return body(*cuda);
#endif
    throw lk::Error(LK_E_UNSUPPORTED, std::string(what) + ": the " + backend.name() + " backend has no streams");
  });
}

}  // namespace

lk_status lk_context_stream(lk_context* context, void** stream) {
  return with_streams(context, "context_stream", [&]([[maybe_unused]] auto& cuda) {
    if (stream == nullptr) throw lk::Error(LK_E_INVALID, "context_stream: stream is NULL");
    *stream = cuda.stream();
  });
}

lk_status lk_context_use_stream(lk_context* context, void* stream) {
  return with_streams(context, "context_use_stream", [&]([[maybe_unused]] auto& cuda) {
    if (context->branches > 0) throw lk::Error(LK_E_INVALID, "context_use_stream: between lk_fork and lk_join");
    if (context->conditional) throw lk::Error(LK_E_INVALID, "context_use_stream: within a condition");
    cuda.use_stream(stream);
  });
}
