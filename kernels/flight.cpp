// Work in flight: queues, events, recorded graphs, conditions and workspace.
#include <algorithm>
#include <cmath>

#include "dispatch.h"
#include "lora_kernels_link.h"

namespace {

template <class T>
T* given(T* pointer, const char* what, const char* name) {
  if (pointer == nullptr) throw lk::Error(LK_E_INVALID, std::string(what) + ": " + name + " is NULL");
  return pointer;
}

void require_queue(const char* what, lk_queue queue) {
  if (queue < LK_COMPUTE || queue > LK_RETURN)
    throw lk::Error(LK_E_INVALID, std::string(what) +
                                      ": queue: expected LK_COMPUTE (0), LK_TRANSFER (1) or LK_RETURN (2), found " +
                                      std::to_string(queue));
}

// Runs body(backend) for a call that is named in its errors.
template <class Body>
lk_status call(lk_context* context, const char* what, const Body& body) {
  return lk::guarded(context, what, [&] { body(*lk::require_context(context, what).backend); });
}

// Each deadline counts from the copy's begin, so that a wait that ends late makes the next one shorter.
void copy_in_pieces(lk_context& context, lk_queue queue, void* dst, const void* src, int64_t bytes) {
  lk::Backend& backend = *context.backend;
  backend.pace_begin(queue);
  for (int64_t at = 0; at < bytes; at += LK_LINK_PIECE) {
    const int64_t end = std::min<int64_t>(at + LK_LINK_PIECE, bytes);
    backend.copy_async(queue, static_cast<char*>(dst) + at, static_cast<const char*>(src) + at, end - at);
    backend.pace(queue, static_cast<int64_t>(static_cast<double>(end) / context.link_rate * 1e9));
    ++context.link_pieces;
  }
}

}  // namespace

lk_status lk_set_link_rate(lk_context* context, double bytes_per_second) {
  return call(context, "set_link_rate", [&](lk::Backend&) {
    if (bytes_per_second != 0 && !(bytes_per_second >= LK_LINK_SLOWEST && std::isfinite(bytes_per_second)))
      throw lk::Error(LK_E_INVALID, "set_link_rate: bytes_per_second: expected 0 or at least 1e6, found " +
                                        std::to_string(bytes_per_second));
    context->link_rate = bytes_per_second;
  });
}

int64_t lk_link_pieces(const lk_context* context) { return context != nullptr ? context->link_pieces : 0; }

lk_status lk_host_alloc(lk_context* context, int64_t bytes, void** out) {
  return call(context, "host_alloc", [&](lk::Backend& backend) {
    given(out, "host_alloc", "out");
    if (bytes < 0) throw lk::Error(LK_E_INVALID, "host_alloc: bytes: expected >= 0, found " + std::to_string(bytes));
    void* const data = backend.host_allocate(bytes);
    if (data == nullptr) {
      throw lk::Error(LK_E_MEMORY, "host_alloc: no host memory for " + std::to_string(bytes) + " bytes");
    }
    *out = data;
  });
}

void lk_host_free(lk_context* context, void* data) {
  if (context != nullptr && data != nullptr) context->backend->host_release(data);
}

lk_status lk_copy_async(lk_context* context, lk_queue queue, void* dst, const void* src, int64_t bytes) {
  return call(context, "copy_async", [&](lk::Backend& backend) {
    require_queue("copy_async", queue);
    if (bytes < 0) throw lk::Error(LK_E_INVALID, "copy_async: bytes: expected >= 0, found " + std::to_string(bytes));
    if (bytes == 0 || context->measuring || context->skipping) return;
    given(dst, "copy_async", "dst");
    given(src, "copy_async", "src");
    if (queue != LK_COMPUTE && context->link_rate > 0)
      copy_in_pieces(*context, queue, dst, src, bytes);
    else
      backend.copy_async(queue, dst, src, bytes);
  });
}

lk_status lk_event_create(lk_context* context, lk_event** out) {
  return call(context, "event_create", [&](lk::Backend& backend) {
    lk_event** const event = given(out, "event_create", "out");
    *event = backend.event_create();
  });
}

void lk_event_destroy(lk_context* context, lk_event* event) {
  if (context != nullptr && event != nullptr) context->backend->event_destroy(event);
}

lk_status lk_event_record(lk_context* context, lk_event* event, lk_queue queue) {
  return call(context, "event_record", [&](lk::Backend& backend) {
    require_queue("event_record", queue);
    backend.event_record(given(event, "event_record", "event"), queue);
  });
}

lk_status lk_event_wait(lk_context* context, lk_event* event, lk_queue queue) {
  return call(context, "event_wait", [&](lk::Backend& backend) {
    require_queue("event_wait", queue);
    backend.event_wait(given(event, "event_wait", "event"), queue);
  });
}

lk_status lk_event_finish(lk_context* context, lk_event* event) {
  return call(context, "event_finish",
              [&](lk::Backend& backend) { backend.event_finish(given(event, "event_finish", "event")); });
}

lk_status lk_event_elapsed(lk_context* context, lk_event* start, lk_event* end, float* milliseconds) {
  return call(context, "event_elapsed", [&](lk::Backend& backend) {
    given(milliseconds, "event_elapsed", "milliseconds");
    *milliseconds = backend.event_elapsed(given(start, "event_elapsed", "start"), given(end, "event_elapsed", "end"));
  });
}

lk_status lk_capture_begin(lk_context* context) {
  return call(context, "capture_begin", [&](lk::Backend& backend) { backend.capture_begin(); });
}

lk_status lk_capture_end(lk_context* context, lk_graph** out) {
  return call(context, "capture_end", [&](lk::Backend& backend) {
    context->branches = 0;  // an error may have come before the join
    lk_graph* const graph = backend.capture_end();
    if (out != nullptr)
      *out = graph;
    else
      backend.graph_destroy(graph);
  });
}

lk_status lk_graph_launch(lk_context* context, lk_graph* graph) {
  return call(context, "graph_launch",
              [&](lk::Backend& backend) { backend.graph_launch(given(graph, "graph_launch", "graph")); });
}

void lk_graph_destroy(lk_context* context, lk_graph* graph) {
  if (context != nullptr && graph != nullptr) context->backend->graph_destroy(graph);
}

lk_status lk_if_finite_begin(lk_context* context, const lk_tensor* value) {
  return call(context, "if_finite_begin", [&](lk::Backend& backend) {
    given(value, "if_finite_begin", "value");
    if (value->data == nullptr || value->dtype != LK_F32 || lk_numel(value) != 1)
      throw lk::Error(LK_E_INVALID, "if_finite_begin: value: expected one f32 element");
    if (context->conditional) throw lk::Error(LK_E_INVALID, "if_finite_begin: inside another one");
    if (context->branches > 0) throw lk::Error(LK_E_INVALID, "if_finite_begin: between lk_fork and lk_join");
    if (!context->measuring) context->skipping = !backend.if_finite_begin(static_cast<const float*>(value->data));
    context->conditional = true;
  });
}

lk_status lk_if_finite_end(lk_context* context) {
  return call(context, "if_finite_end", [&](lk::Backend& backend) {
    if (!context->conditional) throw lk::Error(LK_E_INVALID, "if_finite_end: without lk_if_finite_begin");
    if (context->branches > 0) throw lk::Error(LK_E_INVALID, "if_finite_end: between lk_fork and lk_join");
    context->conditional = context->skipping = false;
    if (!context->measuring) backend.if_finite_end();
  });
}

lk_status lk_fork(lk_context* context, int32_t branches) {
  return call(context, "fork", [&](lk::Backend& backend) {
    if (branches < 1 || branches > LK_MAX_BRANCHES)
      throw lk::Error(LK_E_INVALID, "fork: branches: expected 1 to " + std::to_string(LK_MAX_BRANCHES) + ", found " +
                                        std::to_string(branches));
    if (context->branches > 0) throw lk::Error(LK_E_INVALID, "fork: between another lk_fork and its lk_join");
    backend.fork(branches);
    context->branches = branches;
  });
}

lk_status lk_branch(lk_context* context, int32_t branch) {
  return call(context, "branch", [&](lk::Backend& backend) {
    if (branch < 0 || branch >= context->branches)
      throw lk::Error(LK_E_INVALID, context->branches == 0
                                        ? "branch: without lk_fork"
                                        : "branch: expected 0 to " + std::to_string(context->branches - 1) +
                                              ", found " + std::to_string(branch));
    backend.branch(branch);
  });
}

lk_status lk_join(lk_context* context) {
  return call(context, "join", [&](lk::Backend& backend) {
    if (context->branches == 0) throw lk::Error(LK_E_INVALID, "join: without lk_fork");
    context->branches = 0;
    backend.join();
  });
}

lk_status lk_measure_begin(lk_context* context) {
  return call(context, "measure_begin", [&](lk::Backend& backend) {
    backend.measure_begin();
    context->measuring = true;
  });
}

lk_status lk_measure_end(lk_context* context, int64_t* workspace_bytes) {
  return call(context, "measure_end", [&](lk::Backend& backend) {
    context->measuring = false;
    const int64_t bytes = backend.measure_end();
    if (workspace_bytes != nullptr) *workspace_bytes = bytes;
  });
}

lk_status lk_set_workspace(lk_context* context, void* data, int64_t bytes) {
  return call(context, "set_workspace", [&](lk::Backend& backend) {
    if (data == nullptr ? bytes != 0 : bytes < 0)
      throw lk::Error(LK_E_INVALID, "set_workspace: bytes: found " + std::to_string(bytes));
    backend.set_workspace(data, bytes);
  });
}
