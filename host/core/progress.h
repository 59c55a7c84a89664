// A progress bar on stderr:
//
//   name  43%|#####     | 129/300 [00:41<00:54, 3.2 it/s] loss 0.512 lr 1.0e-04 mem 812 MiB
//
// On a terminal the line is redrawn in place and cut to its width; elsewhere a plain line is written now and then, so
// that logs stay short. Nothing here throws: a bar that cannot be drawn must not end a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lh {

struct ProgressState {
  std::string name;
  int64_t done = 0, total = 0;
  int64_t first = 0;    // done when the run began: a resumed run does not count what came before
  double seconds = 0;   // since the run began
  std::string details;  // "loss 0.512 lr 1.0e-04 mem 812 MiB"
};

// The line, at most `width` columns; 0 = as long as it is. The bar shrinks and goes first, then the clock but for the
// time that is left, then the last of the details.
std::string progress_line(const ProgressState& state, int64_t width);
// "00:41", "1:02:03", "?" for what is not known.
std::string clock_text(double seconds);
// "loss 0.512 lr 1.0e-04 mem 812 MiB"; negative memory is left out.
std::string training_details(double loss, double lr, int64_t memory_mib);

class Progress {
 public:
  struct Target {
    int fd = 2;
    double plain_interval = 10;  // seconds between lines where there is no terminal
  };
  Progress(std::string name, int64_t total, int64_t first, Target target) noexcept;
  Progress(std::string name, int64_t total, int64_t first = 0) noexcept
      : Progress(std::move(name), total, first, Target()) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, const std::string& details) noexcept;
  void finish() noexcept;  // leaves the last state on the screen; called by the destructor too

  // Clears a bar drawn on stderr so that other text can be written; the next update draws it again.
  static void make_room() noexcept;

 private:
  void draw(bool last) noexcept;

  ProgressState state_;
  Target target_;
  bool terminal_ = false, finished_ = false;
  int64_t drawn_done_ = -1;  // of the line that was drawn last
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace lh
