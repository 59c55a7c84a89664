// What a model makes of sound, and what is made of a clip's for it.
#pragma once

#include <cmath>
#include <cstdint>

namespace lh {

// The sound that is diffused together with a clip's latents: rows of latents, of two channels of sound.
struct SoundSpec {
  int64_t channels = 0;     // numbers of a row
  int64_t rows = 0;         // a second
  int64_t rate = 0;         // samples a second that sound.encode is given
  int64_t output_rate = 0;  // and that sound.decode gives
  double frame_rate = 0;    // frames a second that clips are taken to have
  double seconds(int64_t frames) const { return static_cast<double>(frames) / frame_rate; }
  // Of a clip's sound; a still image has none.
  int64_t rows_of(int64_t frames) const {
    return frames > 1 ? std::llrint(seconds(frames) * static_cast<double>(rows)) : 0;
  }
  int64_t samples(int64_t of_rows) const { return of_rows * (rate / rows); }
};

}  // namespace lh
