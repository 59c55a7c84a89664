// SHA-256 by OpenSSL.
#include "core/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <new>

#include "core/error.h"

namespace lh {

struct Sha256::Impl {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  // Every OpenSSL has SHA-256: all that it can lack is memory. Where that was short when it made its default context,
  // for the first digest, there is none for good, and asking for a digest would crash.
  if (OSSL_LIB_CTX_get0_global_default() == nullptr || !impl_->context ||
      EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) != 1)
    throw std::bad_alloc();
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) != 1)
    fail(Code::internal, "OpenSSL refused to hash {} bytes", bytes.size());
  return *this;
}

Sha256& Sha256::update(std::string_view text) { return update(std::as_bytes(std::span(text))); }

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_DigestFinal_ex(impl_->context.get(), digest.data(), &length) != 1)
    fail(Code::internal, "OpenSSL could not finish a SHA-256");
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::string_view text) { return Sha256().update(text).hex(); }
std::string sha256_hex(std::span<const std::byte> bytes) { return Sha256().update(bytes).hex(); }

}  // namespace lh
