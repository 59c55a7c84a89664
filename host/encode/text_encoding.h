// Prompts to conditioning tensors: the model's text encoders, behind a cache.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "encode/denoiser_inputs.h"
#include "encode/prompt_tokens.h"
#include "encode/tensor_cache.h"
#include "plugin/model.h"
#include "run/device.h"
#include "run/fit_forward.h"
#include "run/program.h"

namespace lh {

class World;

class TextEncoding {
 public:
  // The encoders' blocks are streamed from host memory where they would take more than `memory` bytes of the device.
  TextEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder,
               int64_t memory = std::numeric_limits<int64_t>::max());
  // Encodes every prompt that is not cached yet; the encoders are in memory only while this runs. The second: together
  // with the other processes of a run, all of which call it.
  void prepare(const std::vector<Prompt>& prompts);
  void prepare(const std::vector<Prompt>& prompts, World& world);
  // Throws lh::Error where prepare() would have to encode something and the encoders cannot be made to fit.
  void require_memory(const std::vector<Prompt>& prompts);
  // Disk space that one prompt takes at most, and that prepare() will take.
  int64_t bytes_each();
  int64_t bytes_to_cache(const std::vector<Prompt>& prompts);

  // Sizes that the denoiser's graph is built with, "text_length": for one prompt, for the longest of several, and for
  // any prompt (with pictures that are square). Known without running an encoder.
  Sizes lengths(const Prompt& prompt);
  Sizes lengths(const std::vector<Prompt>& prompts);
  Sizes most_lengths();
  // The conditioner for one prompt, with the outputs that the denoiser is given.
  Graph conditioner(DType compute) const { return conditioner(compute, picture_sizes(model_.recipe(), Prompt(""))); }
  PromptTokens& tokens() { return tokens_; }
  // Gives a conditioner the prompt's tokens and pictures, as far as it asks for them.
  void set_inputs(Program& conditioner, const Prompt& prompt);
  // What the conditioner gave, as the denoiser may be given it: only the rows that are there.
  NamedTensors conditioning(Program& conditioner) const;
  // The prompt must have been prepared, or given.
  TensorCache::Entry at(const Prompt& prompt);
  // at() is asked for it soon.
  void will_need(const Prompt& prompt) { cache_.will_need(key(prompt)); }
  // Conditioning that stands for a prompt from now on, whatever is cached.
  void give(const Prompt& prompt, NamedTensors conditioning) {
    given_[prompt.identity()] = std::make_shared<const NamedTensors>(std::move(conditioning));
  }

 private:
  // The conditioner for pictures of certain sizes; for models whose encoders only read there is one.
  struct Encoder {
    Graph graph;
    std::string identity = {};                       // of graph, weights and tokenizers, for keys
    std::map<std::string, OwnedProgram> masks = {};  // by output: the part of the conditioner that makes it
  };
  Encoder& encoder(const Prompt& prompt) { return encoder(picture_sizes(model_.recipe(), prompt)); }
  Encoder& encoder(const PictureSizes& pictures);
  Encoder& usual() { return encoder(Prompt("")); }
  Encoder& largest();
  Graph conditioner(DType compute, const PictureSizes& pictures) const;
  Sizes most_lengths(const Encoder& encoder) const;
  std::string key(const Prompt& prompt);
  int64_t rows_there(const std::string& mask, const Prompt& prompt);
  void encode(const std::vector<Prompt>& prompts, World& world);
  TensorCache::Check check(const Prompt& prompt);
  TensorCache::Entry find(const Prompt& prompt) { return cache_.find(key(prompt), check(prompt)); }
  const ForwardFit& fit();

  Device& device_;
  const Model& model_;
  DType compute_;
  TensorCache cache_;
  int64_t memory_;
  PromptTokens tokens_;
  std::map<PictureSizes, Encoder> encoders_;                      // built when first asked for
  std::optional<ForwardFit> fit_;                                 // of the largest into memory_
  std::map<std::string, TensorCache::Entry> given_;               // by identity of the prompt
  std::map<std::pair<std::string, std::string>, int64_t> there_;  // by mask and prompt: rows that are there
};

}  // namespace lh
