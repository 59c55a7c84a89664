// Calls that somebody listens to (lora_kernels_trace.h).
#pragma once

#include <functional>
#include <string>

#include "backend.h"
#include "lora_kernels_trace.h"

namespace lk {

struct Trace {
  lk_trace_function function = nullptr;
  void* user = nullptr;
};

// As the environment asks for it.
Trace trace_of_environment();

// Runs the operation and tells what it did.
void run_traced(Backend& backend, const Trace& trace, const char* op, const std::function<void()>& operation);

}  // namespace lk
