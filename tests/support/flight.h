// Work in flight for tests: a context with events, recorded graphs and memory that copies use, all freed with it.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "support/kernel_tensors.h"

namespace lk_test {

struct EventDeleter {
  lk_context* context;
  void operator()(lk_event* event) const { lk_event_destroy(context, event); }
};
using Event = std::unique_ptr<lk_event, EventDeleter>;

struct GraphDeleter {
  lk_context* context;
  void operator()(lk_graph* graph) const { lk_graph_destroy(context, graph); }
};
using Graph = std::unique_ptr<lk_graph, GraphDeleter>;

struct StagingDeleter {
  lk_context* context;
  void operator()(void* data) const { lk_host_free(context, data); }
};
using Staging = std::unique_ptr<void, StagingDeleter>;

class Flight : public Kernels {
 protected:
  bool records() const { return lh::test::tested_device() == "cuda"; }
  std::string error() const { return lk_last_error(context.get()); }
  void expect_invalid(lk_status status, const std::string& text) const {
    EXPECT_EQ(status, LK_E_INVALID);
    EXPECT_THAT(error(), testing::HasSubstr(text));
  }

  Event event() {
    lk_event* made = nullptr;
    EXPECT_EQ(lk_event_create(context.get(), &made), LK_OK) << error();
    return Event(made, {context.get()});
  }
  Staging staging(int64_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(lk_host_alloc(context.get(), bytes, &data), LK_OK) << error();
    return Staging(data, {context.get()});
  }
  void copy(lk_queue queue, void* to, const void* from, int64_t bytes) {
    ASSERT_EQ(lk_copy_async(context.get(), queue, to, from, bytes), LK_OK) << error();
  }
  // The queue `then` goes on when what the queue `first` has so far is done.
  void order(lk_event* event, lk_queue first, lk_queue then) {
    ASSERT_EQ(lk_event_record(context.get(), event, first), LK_OK) << error();
    ASSERT_EQ(lk_event_wait(context.get(), event, then), LK_OK) << error();
  }
  // What `work` enqueues, as one graph.
  template <class Work>
  Graph record(const Work& work) {
    lk_graph* graph = nullptr;
    EXPECT_EQ(lk_capture_begin(context.get()), LK_OK) << error();
    work();
    EXPECT_EQ(lk_capture_end(context.get(), &graph), LK_OK) << error();
    return Graph(graph, {context.get()});
  }
  void launch(const Graph& graph) { ASSERT_EQ(lk_graph_launch(context.get(), graph.get()), LK_OK) << error(); }
  void fill(const Tensor& tensor, double value) {
    const lk_fill_params p{.y = tensor.view(), .value = value};
    ASSERT_EQ(lk_fill(context.get(), &p), LK_OK) << error();
  }
  template <class Work>
  int64_t workspace_of(const Work& work) {
    int64_t bytes = -1;
    EXPECT_EQ(lk_measure_begin(context.get()), LK_OK) << error();
    work();
    EXPECT_EQ(lk_measure_end(context.get(), &bytes), LK_OK) << error();
    return bytes;
  }
};

}  // namespace lk_test
