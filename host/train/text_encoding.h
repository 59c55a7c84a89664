// Prompts to conditioning tensors: tokenizers and the model's text encoders, behind a cache.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugin/model.h"
#include "run/device.h"
#include "train/tensor_cache.h"

namespace lh {

struct Conditioning {
  const HostTensor* text = nullptr;    // [1, L, D]
  const HostTensor* pooled = nullptr;  // [1, P]
};

class TextEncoding {
 public:
  TextEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder);
  // Encodes every prompt that is not cached yet; the encoders are in memory only while this runs.
  void prepare(const std::vector<std::string>& prompts);
  // Disk space that prepare() will take.
  int64_t bytes_to_cache(const std::vector<std::string>& prompts) const;
  // Tokens of `text`, without running anything.
  int64_t length() const;
  // The prompt must have been prepared.
  Conditioning at(const std::string& prompt);

 private:
  Graph conditioner() const;
  std::string key(const std::string& prompt) const;
  void encode(const std::vector<std::string>& prompts);
  Device& device_;
  const Model& model_;
  DType compute_;
  TensorCache cache_;
  std::string encoders_;  // identifies encoders and tokenizers in keys
};

}  // namespace lh
