// Checks of the disk before a run starts: what would fail at the first save fails now.
#pragma once

#include "train/prepare.h"

namespace lh {

// Bytes that a run still writes.
struct DiskNeed {
  int64_t state = 0, states = 0;  // one file of training state, and how many there are at most at one time
  int64_t lora = 0, loras = 0;    // one LoRA file, and how many
  int64_t cache = 0;              // encoded images and prompts that are not cached yet
  int64_t total() const { return state * states + lora * loras + cache; }
};
DiskNeed disk_need(Prepared& prepared);

// Throws lh::Error(Code::resource) when the output folder cannot be written or lacks the space.
void check_disk(Prepared& prepared);

// Throws what the first save would: names that are too long or no UTF-8, a folder where a file will go, metadata that a
// LoRA cannot carry. A file is written, renamed and removed again where the run will write.
void check_outputs(const Prepared& prepared);

}  // namespace lh
