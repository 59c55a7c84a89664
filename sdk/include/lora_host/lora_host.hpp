// lora_host.hpp - the C++20 side of the ABI: typed ops, weights by name, exceptions kept inside, one macro for a
// plugin.
#pragma once

#include "lora_host/adapter.hpp"
#include "lora_host/border.hpp"
#include "lora_host/graph.hpp"
#include "lora_host/optimizer.hpp"
#include "lora_host/options.hpp"
#include "lora_host/plugin.hpp"
#include "lora_host/sampler.hpp"
#include "lora_host/schedule.hpp"
#include "lora_host/weights.hpp"
