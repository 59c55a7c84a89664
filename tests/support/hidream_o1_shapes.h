// HiDream-O1-Image in any size, by the names and shapes of its files.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct HiDreamO1 {
  int64_t layers, hidden, queries, keys, inner, words;  // queries, keys: heads

  Shapes shapes() const;
};
// As many words as Qwen3 and HiDream's own after them.
inline constexpr HiDreamO1 small_hidream_o1{2, 64, 2, 1, 96, 151936}, full_hidream_o1{36, 4096, 32, 8, 12288, 151936};

// One file with everything that a run needs.
void write_small_hidream_o1(const std::filesystem::path& path);

}  // namespace lh::test
