// Text to token ids: CLIP's byte-pair encoding and T5's sentencepiece, equal to the tokenizers the models were trained
// with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lh {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Exactly `length` ids: cut with the end token kept last, or padded. `cut` (optional) says how many tokens were lost.
  virtual std::vector<int32_t> encode(const std::string& utf8, int64_t length, int64_t* cut = nullptr) const = 0;
};

// BOS 49406, EOS 49407; pad id as the encoder was trained.
std::unique_ptr<Tokenizer> make_clip_tokenizer(const std::filesystem::path& folder,
                                               int32_t pad);  // vocab.json, merges.txt
// EOS 1, pad 0.
std::unique_ptr<Tokenizer> make_t5_tokenizer(const std::filesystem::path& spiece_model);
// Where the tokenizer files ship: $LORA_HOST_DATA/tokenizers, <exe>/../share/lora-host/tokenizers or the source tree.
std::filesystem::path tokenizer_folder(const std::string& kind);  // "clip" or "t5"

}  // namespace lh
