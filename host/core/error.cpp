#include "core/error.h"

namespace lh {

void throw_error(Code code, fmt::string_view format, fmt::format_args arguments) {
  throw Error(code, fmt::vformat(format, arguments));
}

}  // namespace lh
