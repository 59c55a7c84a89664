#include "trace.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dispatch.h"

namespace lk {

namespace {

// "A; 3 x B"
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (size_t i = 0; i < texts.size();) {
    size_t end = i + 1;
    while (end < texts.size() && texts[end] == texts[i]) ++end;
    if (!all.empty()) all += "; ";
    if (end - i > 1) all += std::to_string(end - i) + " x ";
    all += texts[i];
    i = end;
  }
  return all;
}

void write_to_stderr(void*, const lk_call_trace* call) {
  char time[32] = "recorded";
  if (call->milliseconds >= 0) std::snprintf(time, sizeof time, "%.3f ms", call->milliseconds);
  std::fprintf(stderr, "lora_kernels: %s, %s: %s%s%s\n", call->op, time, call->kernels,
               *call->passed_over != '\0' ? " | not " : "", call->passed_over);
}

// A place in the compute queue.
class Place {
 public:
  explicit Place(Backend& backend) : backend_(backend), event_(backend.event_create()) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { backend_.event_destroy(event_); }
  void record() { backend_.event_record(event_, LK_COMPUTE); }
  // Waits for this one.
  double milliseconds_since(const Place& before) {
    backend_.event_finish(event_);
    return static_cast<double>(backend_.event_elapsed(before.event_, event_));
  }

 private:
  Backend& backend_;
  lk_event* event_;
};

// Of the running operation; nobody listens once it has ended, well or badly.
class Listening {
 public:
  Listening(Backend& backend, Notes& notes) : backend_(backend) { backend.notes = &notes; }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() { backend_.notes = nullptr; }

 private:
  Backend& backend_;
};

}  // namespace

Trace trace_of_environment() {
  const char* const text = std::getenv("LORA_VERBOSE");
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const size_t end = rest.find_first_of(",|");
    if (rest.substr(0, end) == "dispatch") return {write_to_stderr, nullptr};
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return {};
}

void run_traced(Backend& backend, const Trace& trace, const char* op, const std::function<void()>& operation) {
  Notes notes;
  double milliseconds = -1;
  {
    const Listening listening(backend, notes);
    if (backend.capturing()) {
      operation();
    } else {
      Place begin(backend), end(backend);
      begin.record();
      operation();
      end.record();
      milliseconds = end.milliseconds_since(begin);
    }
  }
  if (notes.ran.empty()) notes.ran.push_back(std::string(backend.name()) + " " + op);
  const std::string kernels = joined(notes.ran), passed_over = joined(notes.passed_over);
  const lk_call_trace call{.struct_size = sizeof(lk_call_trace),
                           .op = op,
                           .kernels = kernels.c_str(),
                           .passed_over = passed_over.c_str(),
                           .milliseconds = milliseconds};
  trace.function(trace.user, &call);
}

}  // namespace lk

lk_status lk_set_trace(lk_context* context, lk_trace_function trace, void* user) {
  return lk::guarded(context, "set_trace", [&] {
    lk::require_context(context, "set_trace");
    context->trace = {trace, user};
  });
}
