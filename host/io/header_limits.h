// What a file's header may ask of who reads it.
#pragma once

#include <cstddef>

namespace lh {

// Ten times what large models have: every one of them is looked up, matched and compared later.
inline constexpr size_t most_tensors = 65536;
inline constexpr size_t longest_name =
    1024;  // names are looked for by expressions, whose search is as deep as they are long

}  // namespace lh
