// What is free on a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lh {

// Bytes that this user may take on the file system of a folder; none where it does not tell.
std::optional<int64_t> free_disk_bytes(const std::filesystem::path& folder);

}  // namespace lh
