// Anima in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer, without the adapter. Heads of 128.
struct AnimaDit {
  int64_t blocks, hidden, inner, text, waist;  // waist: of the modulations

  Shapes shapes() const;
};
inline constexpr AnimaDit small_anima{2, 256, 320, 64, 24}, full_anima{28, 2048, 8192, 1024, 256};

// The adapter under `prefix`, e.g. "llm_adapter.": heads of 64.
struct AnimaAdapter {
  int64_t blocks, width, inner, source, words;  // source: width of the states that it reads
};
inline constexpr AnimaAdapter small_anima_adapter{2, 64, 96, 96, 32128}, full_anima_adapter{6, 1024, 4096, 1024, 32128};
void add_anima_adapter(Shapes& shapes, const std::string& prefix, const AnimaAdapter& size);

// The transformer's file, with the adapter inside.
Shapes anima_file(const AnimaDit& dit, const AnimaAdapter& adapter);

// One file with everything that a run needs, with as many words as T5 and tests/data/qwen_small have.
void write_small_anima(const std::filesystem::path& path);

}  // namespace lh::test
