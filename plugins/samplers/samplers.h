// The samplers of this plugin, one file for each method.
#pragma once

#include "lora_host/lora_host.hpp"

namespace samplers {

using lora_host::Dims;
using lora_host::Graph;
using lora_host::Step;
using lora_host::Value;

inline constexpr const char* all_models[] = {"flow", "epsilon", "v_prediction", nullptr};
inline constexpr const char* flow_models[] = {"flow", nullptr};
inline constexpr const char* discrete_models[] = {"epsilon", "v_prediction", nullptr};
inline constexpr const char* nothing[] = {nullptr};

extern const lh_sampler euler, flow_euler, euler_ancestral, heun, flow_heun, ddim, dpmpp_2m;

}  // namespace samplers
