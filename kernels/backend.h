// What a backend is: memory, and one function per operation. A backend adds itself by a class derived from Backend, a
// filled OpTable and a line in context.cpp, which may name a module (backend_module.h); an operation that it lacks
// stays a null pointer.
//
// Operations run with arguments that were already checked (see check.h). Failures are thrown as lk::Error and become
// the status and the text of the public call.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lora_kernels.h"
#include "lora_kernels_group.h"
#include "op_list.h"

namespace lk {

class LK_API Error : public std::runtime_error {
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

// What an operation says of itself to who listens (lora_kernels_trace.h).
struct Notes {
  std::vector<std::string> ran;          // kernels and calls of libraries, in order
  std::vector<std::string> passed_over;  // what would have come first, and why it did not
};

// Of the calls about work in flight the defaults are those of a backend where everything has happened on return.
class Backend {
 public:
  virtual ~Backend() = default;

  Notes* notes = nullptr;  // of the running operation; nullptr where nobody listens
  // False, for a `return`.
  bool passes_over(const char* kernel, const char* why) const {
    if (notes != nullptr) notes->passed_over.push_back(std::string(kernel) + ": " + why);
    return false;
  }

  // Makes the backend's device the thread's, and gives what `leave` needs to make it the one that was before.
  virtual int32_t enter() { return 0; }
  virtual void leave(int32_t) {}
  virtual const char* name() const = 0;
  virtual int32_t threads() const = 0;
  virtual const OpTable& ops() const = 0;
  virtual lk_device_info info() = 0;
  virtual void* allocate(int64_t bytes) = 0;  // nullptr when there is no memory
  virtual void release(void* data) = 0;
  virtual int64_t memory_peak() const = 0;
  virtual void upload(void* dst, const void* src, int64_t bytes) = 0;
  virtual void download(void* dst, const void* src, int64_t bytes) = 0;
  virtual void synchronize() {}

  virtual void* host_allocate(int64_t bytes) = 0;  // nullptr when there is no memory
  virtual void host_release(void* data) = 0;
  virtual void copy_async(lk_queue queue, void* dst, const void* src, int64_t bytes) = 0;
  // Of a slower link (lora_kernels_link.h): a place in a queue of copies, and where that queue waits until so much time
  // has passed since it came to the last such place.
  virtual void pace_begin(lk_queue queue) = 0;
  virtual void pace(lk_queue queue, int64_t nanoseconds) = 0;
  virtual lk_event* event_create() = 0;
  virtual void event_destroy(lk_event* event) = 0;
  virtual void event_record(lk_event* event, lk_queue queue) = 0;
  virtual void event_wait(lk_event*, lk_queue) {}
  virtual void event_finish(lk_event*) {}
  virtual float event_elapsed(lk_event* start, lk_event* end) = 0;  // milliseconds
  virtual void capture_begin() = 0;
  virtual lk_graph* capture_end() = 0;
  virtual void graph_launch(lk_graph* graph) = 0;
  virtual void graph_destroy(lk_graph* graph) = 0;
  // Where the condition can be read now, false skips the operations up to the end of the region.
  virtual bool if_finite_begin(const float* value) = 0;
  virtual void if_finite_end() {}
  virtual void fork(int32_t) {}
  virtual void branch(int32_t) {}
  virtual void join() {}
  virtual void measure_begin() {}
  virtual int64_t measure_end() { return 0; }  // bytes
  virtual bool capturing() const { return false; }
  virtual bool runs_while_measuring() const { return false; }  // operations are called, to say what they need
  virtual void set_workspace(void*, int64_t) {}
  // Of lora_kernels_stream.h, for backends whose compute queue is one; nullptr: its own.
  virtual bool has_streams() const { return false; }
  virtual void* current_stream() const { return nullptr; }
  virtual void use_stream(void*) {}
  // Of lora_kernels_choices.h; a backend that chooses nothing by time has none and takes any.
  virtual void choose_by_time(bool) {}
  virtual std::string choices() { return {}; }
  virtual bool take_choices(const char*) { return true; }  // false: a line is damaged, nothing was taken
};

std::unique_ptr<Backend> make_cpu_backend(const lk_context_params& params);

}  // namespace lk
