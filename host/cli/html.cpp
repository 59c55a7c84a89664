#include "cli/html.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include "core/utf8.h"

namespace lh {

std::string html_text(std::string_view text) {
  constexpr std::string_view unknown = "\xef\xbf\xbd";
  std::string out;
  while (!text.empty()) {
    const size_t good = invalid_utf8(text).value_or(text.size());
    for (const char c : text.substr(0, good)) switch (c) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '"': out += "&quot;"; break;
        case '\'': out += "&#39;"; break;
        case '\n':
        case '\t': out += c; break;
        default: (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? out += unknown : out += c;
      }
    if (good == text.size()) break;
    out += unknown;
    text.remove_prefix(good + 1);
  }
  return out;
}

std::string data_url(std::string_view type, std::string_view bytes) {
  std::string base64(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  base64.resize(static_cast<size_t>(size));
  return fmt::format("data:{};base64,{}", type, base64);
}

}  // namespace lh
