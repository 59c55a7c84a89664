// Plugin "adapters": what a layer becomes when it is trained.
#include "adapters.h"

LORA_HOST_PLUGIN("adapters", "0.1.0", "MIT OR Apache-2.0", {LH_ADAPTER_FACTORY, &adapters::lora},
                 {LH_ADAPTER_FACTORY, &adapters::locon}, {LH_ADAPTER_FACTORY, &adapters::dora},
                 {LH_ADAPTER_FACTORY, &adapters::loha}, {LH_ADAPTER_FACTORY, &adapters::lokr},
                 {LH_ADAPTER_FACTORY, &adapters::full})
