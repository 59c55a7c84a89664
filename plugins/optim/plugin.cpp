// Plugin "optim": update rules.
#include "optimizers.h"

LORA_HOST_PLUGIN("optim", "0.1.0", "MIT OR Apache-2.0", {LH_OPTIMIZER_FACTORY, &optim::adamw},
                 {LH_OPTIMIZER_FACTORY, &optim::sgd})
