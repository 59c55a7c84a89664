// The optimizers of this plugin, one file each.
#pragma once

#include "lora_host/lora_host.hpp"

namespace optim {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Options;
using lora_host::Parameter;
using lora_host::State;
using lora_host::States;
using lora_host::UpdateGraph;
using lora_host::Value;
namespace option = lora_host::option;

extern const lh_optimizer adafactor;                               // adafactor.cpp
extern const lh_optimizer adam, adamw;                             // adam.cpp
extern const lh_optimizer adamw8bit;                               // adamw8bit.cpp
extern const lh_optimizer automagic;                               // automagic.cpp
extern const lh_optimizer came;                                    // came.cpp
extern const lh_optimizer dadapt_adam;                             // dadapt_adam.cpp
extern const lh_optimizer lion;                                    // lion.cpp
extern const lh_optimizer lion8bit;                                // lion8bit.cpp
extern const lh_optimizer muon, muon_keller;                       // muon.cpp
extern const lh_optimizer prodigy;                                 // prodigy.cpp
extern const lh_optimizer prodigy_plus_schedulefree;               // prodigy_schedulefree.cpp
extern const lh_optimizer rmsprop;                                 // rmsprop.cpp
extern const lh_optimizer schedulefree_adamw, schedulefree_radam;  // schedulefree.cpp
extern const lh_optimizer sgd;                                     // sgd.cpp

}  // namespace optim
