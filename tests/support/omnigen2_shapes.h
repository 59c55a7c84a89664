// OmniGen2 in any size, by the names and shapes of its files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct OmniGen2Dit {
  int64_t layers, refiners;  // refiners of the image, of references and of the text
  int64_t hidden, keys, head, inner, text, time;

  Shapes shapes() const;
};
inline constexpr OmniGen2Dit small_omnigen2{2, 1, 192, 96, 96, 128, 64, 64},
    full_omnigen2{32, 2, 2520, 840, 120, 10240, 2048, 1024};

// One file with everything that a run needs, with as many words as tests/data/qwen_small has.
void write_small_omnigen2(const std::filesystem::path& path);

}  // namespace lh::test
