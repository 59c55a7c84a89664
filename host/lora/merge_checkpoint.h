// LoRAs merged into the files of a checkpoint: the same files again, tensor after tensor, with the changed weights in
// their places. Memory is that of one weight in float32 and of what its changes need.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/lora_merge.h"

namespace lh {

struct MergedFile {
  std::filesystem::path from, to;
  int64_t tensors = 0, changed = 0;
};

// paths: the model's files by their keys, as Checkpoint takes them. out: the file to write where one file is changed
// and it was given as a file; else a folder that is not there yet: a model's folder is copied into it, with the other
// files as they are, and several files under their own names.
//
// Names, their order, metadata and types are those of the file, without hashes of the data. An fp8 weight with a scale
// is rounded to codes anew, with a new scale, by quantise_rows; one without a scale, or of another fp8 type than e4m3,
// is refused. dtype: that the changed weights get instead; their scales then go. Throws before anything is in place.
std::vector<MergedFile> merge_checkpoint(const CheckpointSpec& spec,
                                         const std::map<std::string, std::filesystem::path>& paths,
                                         const std::vector<LoraInput>& loras, Unmatched unmatched,
                                         std::optional<DType> dtype, const std::filesystem::path& out);

}  // namespace lh
