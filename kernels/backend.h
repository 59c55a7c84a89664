// What a backend is: memory, and one function per operation. A backend adds itself by a class derived from Backend, a
// filled OpTable and a line in context.cpp; an operation that it lacks stays a null pointer.
//
// Operations run with arguments that were already checked (see check.h). Failures are thrown as lk::Error and become
// the status and the text of the public call.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "lora_kernels.h"
#include "op_list.h"

namespace lk {

class Error : public std::runtime_error {
 public:
  Error(lk_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  lk_status status() const { return status_; }

 private:
  lk_status status_;
};

class Backend;

struct OpTable {
#define LK_OP_ENTRY(op, params) void (*op)(Backend&, const params&) = nullptr;
  LK_FOR_EACH_OP(LK_OP_ENTRY)
#undef LK_OP_ENTRY
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int32_t threads() const = 0;
  virtual const OpTable& ops() const = 0;
  virtual void* allocate(int64_t bytes) = 0;  // nullptr when there is no memory
  virtual void release(void* data) = 0;
  virtual void upload(void* dst, const void* src, int64_t bytes) = 0;
  virtual void download(void* dst, const void* src, int64_t bytes) = 0;
  virtual void synchronize() = 0;
};

std::unique_ptr<Backend> make_cpu_backend(const lk_context_params& params);

}  // namespace lk
