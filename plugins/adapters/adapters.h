// The adapters of this plugin.
#pragma once

#include "lora_host/lora_host.hpp"

namespace adapters {

extern const lh_adapter lora;   // lora.cpp
extern const lh_adapter locon;  // lora.cpp
extern const lh_adapter dora;   // lora.cpp
extern const lh_adapter loha;   // loha.cpp
extern const lh_adapter lokr;   // lokr.cpp
extern const lh_adapter full;   // full.cpp

}  // namespace adapters
