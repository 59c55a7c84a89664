// Text to token ids, as a recipe describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/tokenizer_files.h"
#include "data/tokenizer_spec.h"

namespace lh {

class TokenModel;
struct TokenizerSource;

class Tokenizer {
 public:
  // Finds the files and reads their bytes; what is in them is looked at when the first text is encoded, so runs whose
  // text embeddings are cached never wait for it. Throws lh::Error that says where files were looked for.
  Tokenizer(const TokenizerSpec& spec, const TokenizerPlaces& places);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // As given, and completed by its preset.
  const TokenizerSpec& spec() const { return spec_; }
  // The ids of the prompt inside its template: nothing cut, nothing around them. places: how many each picture has.
  // negative: a prompt that samples are led away from.
  std::vector<int32_t> encode(const std::string& prompt, const std::vector<int64_t>& places = {},
                              bool negative = false) const;
  // The token that stands for a part of a picture.
  int32_t place() const { return frame().place; }
  // What ids depend on, besides the length: what the specification says and the bytes of the files.
  const std::string& fingerprint() const { return fingerprint_; }
  // What stands around every text and behind short ones.
  struct Frame {
    std::vector<int32_t> begin, end;
    int32_t pad = 0, place = 0;
  };
  const Frame& frame() const;

 private:
  const TokenModel& model() const;
  void load() const;
  int32_t resolve(const char* field, const TokenName& token) const;

  TokenizerSpec spec_;
  std::string fingerprint_;
  mutable std::once_flag loaded_;
  mutable std::unique_ptr<TokenizerSource> source_;  // until the model is made of it
  mutable std::shared_ptr<const TokenModel> model_;
  mutable Frame frame_;
};

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSpec& spec, const TokenizerPlaces& places);

struct TokenRows {
  std::vector<int32_t> ids, mask;  // [rows, length] each; mask: 1 = a token, 0 = a pad
  int64_t cut = 0;                 // tokens of the text that were lost
};
// Begin, text, end and pads. A text that is too long for a row goes on in the next one; what does not fit into the last
// (and with it the tail of its template) is lost, begin and end stay.
TokenRows tokenize(const Tokenizer& tokenizer, const std::string& prompt, int64_t length, int64_t rows = 1,
                   const std::vector<int64_t>& places = {}, bool negative = false);

}  // namespace lh
