#include "data/token_model.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "core/hash.h"

namespace lh {
namespace {

std::string digest_of(const std::string& algorithm, const TokenizerSource& source) {
  Sha256 hash;
  hash.update(fmt::format("{};{};{};{}:", algorithm, source.tokens, source.merges, source.rules.size()));
  hash.update(source.rules);
  add_files(hash, source);
  return hash.hex();
}

// One that is being made is waited for; others are made beside it.
struct Made {
  std::mutex mutex;
  std::weak_ptr<const TokenModel> model;
};

Made& made_of(const std::string& digest) {
  static std::mutex mutex;
  static std::map<std::string, Made> all;
  const std::lock_guard lock(mutex);
  return all[digest];
}

}  // namespace

void add_files(Sha256& hash, const TokenizerSource& source) {
  for (const SourceFile& file : source.files)
    hash.update(fmt::format(";{}:{}:", file.path.filename().string(), file.bytes.size())).update(file.bytes);
}

std::shared_ptr<const TokenModel> token_model(const std::string& algorithm, const TokenizerSource& source) {
  Made& made = made_of(digest_of(algorithm, source));
  const std::lock_guard lock(made.mutex);
  if (std::shared_ptr<const TokenModel> known = made.model.lock()) return known;
  const std::shared_ptr<const TokenModel> model = algorithm == "bpe" ? read_bpe(source) : read_sentencepiece(source);
  made.model = model;
  return model;
}

}  // namespace lh
