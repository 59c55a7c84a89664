#include "core/json_reason.h"

#include <string_view>

namespace lh {

std::string json_reason(const std::exception& error) {
  std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 9: ..."
  if (const size_t number = what.find("] "); what.starts_with("[json.exception.") && number != what.npos)
    what.remove_prefix(number + 2);
  if (constexpr std::string_view at = "parse error at "; what.starts_with(at)) what.remove_prefix(at.size());
  return std::string(what);
}

}  // namespace lh
