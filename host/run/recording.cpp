#include "run/recording.h"

namespace lh {

Recording::~Recording() { lk_graph_destroy(device_.context(), graph_); }

void Recording::launch() {
  if (device_.is_cpu()) return work_();
  if (graph_ == nullptr) {
    device_.check(lk_capture_begin(device_.context()), "recording a step");
    device_.set_recording(true);
    try {
      work_();
    } catch (...) {
      device_.set_recording(false);
      lk_capture_end(device_.context(), nullptr);
      throw;
    }
    device_.set_recording(false);
    device_.check(lk_capture_end(device_.context(), &graph_), "recording a step");
  }
  device_.check(lk_graph_launch(device_.context(), graph_), "a recorded step");
}

}  // namespace lh
