// The check of what gates, of an operation by itself or behind layers.
#pragma once

#include "check.h"

namespace lk {

void check_gate(const Check& check, const char* name, lk_unary_kind kind);

}  // namespace lk
