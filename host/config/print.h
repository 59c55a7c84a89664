// The reference of all configuration keys as Markdown, made from the schema (docs/config.md holds a copy).
#pragma once

#include <string>

namespace lh {

std::string config_reference();

}  // namespace lh
