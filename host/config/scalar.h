// What a scalar of a YAML document says: quoted text is never a number or a flag, and no text is rounded or guessed at.
#pragma once

#include <cstdint>
#include <optional>

#include "config/yaml.h"

namespace lh::yaml {

std::optional<int64_t> integer_of(const Node& node);
std::optional<double> number_of(const Node& node);  // finite
std::optional<bool> flag_of(const Node& node);      // true or false in any of YAML's spellings
// Is a key with this value as good as none? So it is where the value is empty, false or 0, or of such values.
bool asks_for_nothing(const Node& node);

}  // namespace lh::yaml
