/* lora_host.h - the whole C ABI. */
#ifndef LORA_HOST_LORA_HOST_H
#define LORA_HOST_LORA_HOST_H

#include "lora_host/abi.h"
#include "lora_host/adapter.h"
#include "lora_host/host.h"
#include "lora_host/model.h"
#include "lora_host/optimizer.h"
#include "lora_host/options.h"
#include "lora_host/plugin.h"
#include "lora_host/sampler.h"
#include "lora_host/schedule.h"

#endif
