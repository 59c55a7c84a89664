// Sizes of memory as people read and write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lh {

inline double mib(int64_t bytes) { return static_cast<double>(bytes) / 1048576; }
std::string size_text(int64_t bytes);  // "11.2 GiB", "800.0 MiB"
std::string room_text(int64_t bytes);  // enough for so many: rounded up
// "12GiB", "11.5 GiB", "800 MB", "12G" and "12", which are GiB; nothing where the text is no size above 0.
std::optional<int64_t> size_of(std::string_view text);

}  // namespace lh
