// The checks of one layer with an adapter, under the name that `check` has, and of an activation that gates.
#pragma once

#include "check.h"

namespace lk {

void check_lora_forward(const Check& check, const lk_lora_forward_params& p);
void check_lora_backward(const Check& check, const lk_lora_backward_params& p);
void check_gate(const Check& check, int32_t activation);

}  // namespace lk
