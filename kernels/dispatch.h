// The path of every public call: no exception leaves, arguments are checked before anything is written, then the
// backend's function runs.
#pragma once

#include <exception>
#include <new>

#include "backend.h"
#include "trace.h"

struct lk_context {
  std::unique_ptr<lk::Backend> backend;
  std::string error;
  std::string choices;  // as lk_get_choices gave them last
  bool measuring = false;
  bool conditional = false, skipping = false;  // between lk_if_finite_begin and _end; without effect there
  int32_t branches = 0;                        // between lk_fork and lk_join
  double link_rate = 0;                        // lk_set_link_rate
  int64_t link_pieces = 0;
  lk::Trace trace;
};

namespace lk {

// Keeps the text where lk_last_error finds it: in the context, or per thread for calls without one.
lk_status report(lk_context* context, lk_status status, const std::string& text);

inline lk_context& require_context(lk_context* context, const char* what) {
  if (context == nullptr) throw Error(LK_E_INVALID, std::string(what) + ": context is NULL");
  return *context;
}

// The thread's device is the context's while this lives.
class OnDevice {
 public:
  explicit OnDevice(lk_context* context)
      : backend_(context != nullptr ? context->backend.get() : nullptr), before_(backend_ ? backend_->enter() : 0) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (backend_ != nullptr) backend_->leave(before_);
  }

 private:
  Backend* backend_;
  int32_t before_;
};

template <class Body>
lk_status guarded(lk_context* context, const char* what, Body&& body) {
  try {
    const OnDevice device(context);
    body();
    return LK_OK;
  } catch (const Error& error) {
    return report(context, error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return report(context, LK_E_MEMORY, std::string(what) + ": out of host memory");
  } catch (const std::exception& error) {
    return report(context, LK_E_DEVICE, std::string(what) + ": " + error.what());
  }
}

// Parameters as this library knows them. What the caller's struct does not have yet is zero; what it has beyond has to
// be zero.
void read_params(const char* what, const void* given, int64_t given_size, void* own, int64_t own_size);

// `given` itself, or a copy in `own`.
template <class Params>
const Params& known_params(const char* what, const Params* given, Params& own) {
  if (given == nullptr) throw Error(LK_E_INVALID, std::string(what) + ": params is NULL");
  if (given->struct_size == static_cast<int64_t>(sizeof(Params))) return *given;
  read_params(what, given, given->struct_size, &own, sizeof(Params));
  return own;
}

template <class Params>
lk_status run(lk_context* context, const Params* params, const char* op, void (*check)(const Params&),
              void (*OpTable::*entry)(Backend&, const Params&)) {
  return guarded(context, op, [&] {
    require_context(context, op);
    Params own;
    const Params& known = known_params(op, params, own);
    check(known);
    Backend& backend = *context->backend;
    const auto function = backend.ops().*entry;
    if (function == nullptr) {
      throw Error(LK_E_UNSUPPORTED, std::string(op) + ": the " + backend.name() + " backend has no such kernel");
    }
    if (context->skipping || (context->measuring && !backend.runs_while_measuring())) return;
    if (context->trace.function == nullptr || context->measuring) return function(backend, known);
    run_traced(backend, context->trace, op, [&] { function(backend, known); });
  });
}

// Defines the public function lk_<op> from check_<op>, which the file has above.
#define LK_DEFINE_OP(op, params)                                           \
  lk_status lk_##op(lk_context* context, const params* arguments) {        \
    return lk::run(context, arguments, #op, check_##op, &lk::OpTable::op); \
  }

}  // namespace lk
