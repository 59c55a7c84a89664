// SHA-256, for content keys and file metadata.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lh {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  std::string hex();  // finishes

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string sha256_hex(std::string_view text);
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace lh
