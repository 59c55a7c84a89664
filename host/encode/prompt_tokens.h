// Prompts to what each text encoder of a model reads: the ids of its tokenizer, with places for pictures among them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/tensor.h"
#include "data/tokenizer.h"
#include "encode/prompt.h"
#include "plugin/model.h"

namespace lh {

// The inputs of the conditioner for one prompt: "<encoder>.input_ids" and "<encoder>.attention_mask", i32 [rows, L].
using Tokens = NamedTensors;

class PromptTokens {
 public:
  explicit PromptTokens(const Model& model) : model_(model) {}
  // Warns, once for each text, where it is longer than an encoder takes and is cut.
  std::shared_ptr<const Tokens> of(const Prompt& prompt);
  // Sizes that the conditioner's graph is built with: TokenizerSpec::add_sizes of each encoder. Throws lh::Error where
  // the checkpoint has no file of one.
  Sizes sizes() const;
  // With the pictures' places, and where they begin.
  Sizes sizes(const PictureSizes& pictures) const;
  const Tokenizer& tokenizer(const std::string& encoder) const;
  // Identifies the tokenizer of each encoder: its files and rules.
  std::map<std::string, std::string> fingerprints() const;

 private:
  const Model& model_;
  mutable std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;  // made when first asked for
  std::map<std::string, std::shared_ptr<const Tokens>> last_;             // by identity, those asked for last
  std::set<std::string> warned_;                                          // texts that are cut
};

}  // namespace lh
