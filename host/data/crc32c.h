// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace lh {

uint32_t crc32c(std::string_view bytes);
// As TFRecord stores it, so that a checksum of data that holds checksums stays strong.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lh
