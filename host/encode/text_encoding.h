// Prompts to conditioning tensors: tokenizers and the model's text encoders, behind a cache.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "encode/tensor_cache.h"
#include "plugin/model.h"
#include "run/device.h"

namespace lh {

struct Conditioning {
  const HostTensor* text = nullptr;    // [1, L, D]
  const HostTensor* pooled = nullptr;  // [1, P]
};

// The inputs of the conditioner for one prompt: "<encoder>.input_ids" -> i32 [1, L].
using Tokens = std::map<std::string, HostTensor>;

class TextEncoding {
 public:
  TextEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder);
  // Encodes every prompt that is not cached yet; the encoders are in memory only while this runs.
  void prepare(const std::vector<std::string>& prompts);
  // Disk space that prepare() will take.
  int64_t bytes_to_cache(const std::vector<std::string>& prompts) const;
  // Tokens of `text`, without running anything.
  int64_t length() const;
  // "<encoder>.length" of every encoder.
  Sizes lengths() const;
  // The conditioner for one prompt: ids of every encoder -> text, pooled.
  Graph conditioner(DType compute) const;
  const Tokens& tokens(const std::string& prompt);
  // The prompt must have been prepared, or given.
  Conditioning at(const std::string& prompt);
  // Conditioning that stands for a prompt from now on, whatever is cached.
  void give(const std::string& prompt, NamedTensors conditioning) { given_[prompt] = std::move(conditioning); }

 private:
  std::string key(const std::string& prompt) const;
  void encode(const std::vector<std::string>& prompts);
  Device& device_;
  const Model& model_;
  DType compute_;
  TensorCache cache_;
  std::string encoders_;                                          // identifies encoders and tokenizers in keys
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;  // by encoder
  std::map<std::string, Tokens> tokens_;                          // by prompt
  std::map<std::string, NamedTensors> given_;                     // likewise
};

}  // namespace lh
