// Tokenizers of tests: from the tree's own files, or from files written for the test.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace lh::test {

inline TokenizerSpec tokenizer_spec(const std::string& kind) {
  TokenizerSpec spec;
  spec.kind = kind;
  return spec;
}

// Of files in `folder` alone; pad 0.
inline std::unique_ptr<Tokenizer> tokenizer_of(const std::filesystem::path& folder, TokenizerSpec spec) {
  if (!spec.pad) spec.pad = 0;
  spec.files.config = "tokenizer_path";
  return make_tokenizer(spec, {.user = folder, .checkpoint = {}, .plugin = {}});
}

}  // namespace lh::test
