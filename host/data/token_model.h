// What turns a text into ids: one for each algorithm that files are made for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lh {

class Sha256;

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual std::vector<int32_t> ids(const std::string& utf8) const = 0;
  virtual std::optional<int32_t> id_of(const std::string& token) const = 0;
  virtual bool has(int32_t id) const = 0;
  // What the files themselves put around a text.
  virtual std::vector<int32_t> begin() const { return {}; }
  virtual std::vector<int32_t> end() const { return {}; }
};

struct SourceFile {
  std::filesystem::path path;
  std::string bytes;
};

// The files of one tokenizer, read but not looked at.
struct TokenizerSource {
  std::vector<SourceFile> files;
  std::string rules, rules_from;  // JSON, and where it was read; empty: none
  // How many tokens and merges the files must have; 0 = not known.
  int64_t tokens = 0, merges = 0;

  // The file called `name`; nullptr: there is none.
  const SourceFile* file(const std::string& name) const;
};

// Names and bytes of the files, wherever they lie.
void add_files(Sha256& hash, const TokenizerSource& source);

// By one of the algorithms below. Tokenizers with the same files and rules have the same one: two text encoders of a
// model often read one vocabulary, which takes longer to read than all else of a short run.
std::shared_ptr<const TokenModel> token_model(const std::string& algorithm, const TokenizerSource& source);

// Byte-pair encoding: tokenizer.json, or vocab.json with merges.txt and rules.
std::unique_ptr<TokenModel> read_bpe(const TokenizerSource& source);
// The sentencepiece library on the one file there is.
std::unique_ptr<TokenModel> read_sentencepiece(const TokenizerSource& source);

}  // namespace lh
