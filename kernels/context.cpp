// Contexts, their memory and their last error.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend_module.h"
#include "dispatch.h"

namespace {

thread_local std::string thread_error;

void require_copy(const char* what, const void* dst, const void* src, int64_t bytes) {
  if (bytes < 0) {
    throw lk::Error(LK_E_INVALID, std::string(what) + ": bytes: expected >= 0, found " + std::to_string(bytes));
  }
  if (bytes > 0 && dst == nullptr) throw lk::Error(LK_E_INVALID, std::string(what) + ": the destination is NULL");
  if (bytes > 0 && src == nullptr) throw lk::Error(LK_E_INVALID, std::string(what) + ": the source is NULL");
}

}  // namespace

namespace lk {

lk_status report(lk_context* context, lk_status status, const std::string& text) {
  try {
    (context != nullptr ? context->error : thread_error) = text;
  } catch (const std::bad_alloc&) {
    // The status alone must do: there is no memory for its text.
  }
  return status;
}

void read_params(const char* what, const void* given, int64_t given_size, void* own, int64_t own_size) {
  // What is no size of a struct that begins with it was not set. Half a pointer would be read as one, and what lies
  // beyond the most, which no version comes near, is not the caller's.
  constexpr int64_t least = sizeof given_size, most = 1 << 16;
  if (given_size < least || given_size > most || given_size % least != 0) {
    throw Error(LK_E_INVALID, std::string(what) + ": struct_size: expected sizeof the struct, " +
                                  std::to_string(own_size) + " here, found " + std::to_string(given_size));
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (int64_t i = own_size; i < given_size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(LK_E_UNSUPPORTED, std::string(what) + ": byte " + std::to_string(i) + " of the " +
                                      std::to_string(given_size) + " of its parameters is set; " + lk_version() +
                                      " of this library knows " + std::to_string(own_size) +
                                      ": it is older than the header that the caller was compiled with");
  }
  std::memset(own, 0, static_cast<size_t>(own_size));
  std::memcpy(own, given, static_cast<size_t>(std::min(given_size, own_size)));
}

}  // namespace lk

const char* lk_version(void) { return "0.2.0"; }

int32_t lk_backend_available(lk_backend backend) {
  return backend == LK_CPU || (backend == LK_CUDA && lk::backend_module_there("cuda")) ? 1 : 0;
}

lk_status lk_context_create(const lk_context_params* params, lk_context** out) {
  return lk::guarded(nullptr, "context_create", [&] {
    if (out == nullptr) throw lk::Error(LK_E_INVALID, "context_create: out is NULL");
    *out = nullptr;
    lk_context_params own;
    const lk_context_params& known = lk::known_params("context_create", params, own);
    auto context = std::make_unique<lk_context>();
    switch (known.backend) {
      case LK_CPU: context->backend = lk::make_cpu_backend(known); break;
      case LK_CUDA: context->backend = lk::make_backend_of_module("cuda", known); break;
      default:
        throw lk::Error(LK_E_INVALID, "context_create: backend: expected LK_CPU (0) or LK_CUDA (1), found " +
                                          std::to_string(known.backend));
    }
    context->trace = lk::trace_of_environment();
    *out = context.release();
  });
}

void lk_context_destroy(lk_context* context) { delete context; }

const char* lk_last_error(const lk_context* context) {
  return context != nullptr ? context->error.c_str() : thread_error.c_str();
}

int32_t lk_context_threads(const lk_context* context) { return context != nullptr ? context->backend->threads() : 0; }

lk_status lk_alloc(lk_context* context, int64_t bytes, void** out) {
  return lk::guarded(context, "alloc", [&] {
    lk::require_context(context, "alloc");
    if (out == nullptr) throw lk::Error(LK_E_INVALID, "alloc: out is NULL");
    if (bytes < 0) throw lk::Error(LK_E_INVALID, "alloc: bytes: expected >= 0, found " + std::to_string(bytes));
    void* const data = context->backend->allocate(bytes);
    if (data == nullptr) throw lk::Error(LK_E_MEMORY, "alloc: no memory for " + std::to_string(bytes) + " bytes");
    *out = data;
  });
}

void lk_free(lk_context* context, void* data) {
  if (context != nullptr && data != nullptr) context->backend->release(data);
}

lk_status lk_upload(lk_context* context, void* dst, const void* host_src, int64_t bytes) {
  return lk::guarded(context, "upload", [&] {
    lk::require_context(context, "upload");
    require_copy("upload", dst, host_src, bytes);
    if (bytes > 0) context->backend->upload(dst, host_src, bytes);
  });
}

lk_status lk_download(lk_context* context, void* host_dst, const void* src, int64_t bytes) {
  return lk::guarded(context, "download", [&] {
    lk::require_context(context, "download");
    require_copy("download", host_dst, src, bytes);
    if (bytes > 0) context->backend->download(host_dst, src, bytes);
  });
}

lk_status lk_synchronize(lk_context* context) {
  return lk::guarded(context, "synchronize",
                     [&] { lk::require_context(context, "synchronize").backend->synchronize(); });
}

int64_t lk_memory_peak(const lk_context* context) { return context != nullptr ? context->backend->memory_peak() : 0; }

lk_status lk_get_device_info(lk_context* context, lk_device_info* out) {
  return lk::guarded(context, "get_device_info", [&] {
    lk::require_context(context, "get_device_info");
    if (out == nullptr) throw lk::Error(LK_E_INVALID, "get_device_info: out is NULL");
    if (out->struct_size < static_cast<int64_t>(sizeof out->struct_size)) {
      throw lk::Error(LK_E_INVALID, "get_device_info: struct_size: expected sizeof the struct, " +
                                        std::to_string(sizeof *out) + " here, found " +
                                        std::to_string(out->struct_size));
    }
    lk_device_info info = context->backend->info();
    info.struct_size = std::min(out->struct_size, info.struct_size);
    std::memcpy(static_cast<void*>(out), &info, static_cast<size_t>(info.struct_size));
  });
}
