// The optimizers of this plugin.
#pragma once

#include "lora_host/lora_host.hpp"

namespace optim {

extern const lh_optimizer adamw;  // adamw.cpp
extern const lh_optimizer sgd;    // sgd.cpp

}  // namespace optim
