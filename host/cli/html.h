// Text and pictures as parts of an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace lh {

// Nothing in it is markup any more, neither between tags nor in an attribute's quotes; bytes that are no UTF-8 and
// control characters become U+FFFD.
std::string html_text(std::string_view text);
// "data:image/jpeg;base64,..."
std::string data_url(std::string_view type, std::string_view bytes);

}  // namespace lh
