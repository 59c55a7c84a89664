// The checks of one layer with an adapter, under the name that `check` has.
#pragma once

#include "check.h"

namespace lk {

void check_lora_forward(const Check& check, const lk_lora_forward_params& p);
void check_lora_backward(const Check& check, const lk_lora_backward_params& p);

}  // namespace lk
