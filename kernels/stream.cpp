// The stream behind the compute queue, for libraries beside this one.
#include "dispatch.h"
#include "lora_kernels_stream.h"

namespace {

// Runs body(backend) for a call that is named in its errors.
template <class Body>
lk_status with_streams(lk_context* context, const char* what, const Body& body) {
  return lk::guarded(context, what, [&] {
    lk::Backend& backend = *lk::require_context(context, what).backend;
    if (backend.has_streams()) return body(backend);
    throw lk::Error(LK_E_UNSUPPORTED, std::string(what) + ": the " + backend.name() + " backend has no streams");
  });
}

}  // namespace

lk_status lk_context_stream(lk_context* context, void** stream) {
  return with_streams(context, "context_stream", [&](lk::Backend& backend) {
    if (stream == nullptr) throw lk::Error(LK_E_INVALID, "context_stream: stream is NULL");
    *stream = backend.current_stream();
  });
}

lk_status lk_context_use_stream(lk_context* context, void* stream) {
  return with_streams(context, "context_use_stream", [&](lk::Backend& backend) {
    if (context->branches > 0) throw lk::Error(LK_E_INVALID, "context_use_stream: between lk_fork and lk_join");
    if (context->conditional) throw lk::Error(LK_E_INVALID, "context_use_stream: within a condition");
    backend.use_stream(stream);
  });
}
