// What a LoRA file says about its training. No time stamps: two equal trainings give equal bytes.
#pragma once

#include "io/lora_file.h"
#include "train/prepare.h"

namespace lh {

LoraMetadata lora_metadata(const Prepared& prepared, const TrainSection& now, int64_t step);

}  // namespace lh
