// Plugin "optim": update rules.
#include "optimizers.h"

LORA_HOST_PLUGIN("optim", "0.2.0", "MIT OR Apache-2.0", {LH_OPTIMIZER_FACTORY, &optim::adafactor},
                 {LH_OPTIMIZER_FACTORY, &optim::adam}, {LH_OPTIMIZER_FACTORY, &optim::adamw},
                 {LH_OPTIMIZER_FACTORY, &optim::adamw8bit}, {LH_OPTIMIZER_FACTORY, &optim::automagic},
                 {LH_OPTIMIZER_FACTORY, &optim::came}, {LH_OPTIMIZER_FACTORY, &optim::dadapt_adam},
                 {LH_OPTIMIZER_FACTORY, &optim::lion}, {LH_OPTIMIZER_FACTORY, &optim::lion8bit},
                 {LH_OPTIMIZER_FACTORY, &optim::muon}, {LH_OPTIMIZER_FACTORY, &optim::muon_keller},
                 {LH_OPTIMIZER_FACTORY, &optim::prodigy}, {LH_OPTIMIZER_FACTORY, &optim::prodigy_plus_schedulefree},
                 {LH_OPTIMIZER_FACTORY, &optim::rmsprop}, {LH_OPTIMIZER_FACTORY, &optim::schedulefree_adamw},
                 {LH_OPTIMIZER_FACTORY, &optim::schedulefree_radam}, {LH_OPTIMIZER_FACTORY, &optim::sgd})
