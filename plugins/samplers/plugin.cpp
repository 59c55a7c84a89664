// Plugin "samplers": integrators of the denoising equation.
#include "samplers.h"

LORA_HOST_PLUGIN("samplers", "0.1.0", "MIT OR Apache-2.0", {LH_SAMPLER_FACTORY, &samplers::euler},
                 {LH_SAMPLER_FACTORY, &samplers::euler_ancestral}, {LH_SAMPLER_FACTORY, &samplers::heun},
                 {LH_SAMPLER_FACTORY, &samplers::ddim}, {LH_SAMPLER_FACTORY, &samplers::dpmpp_2m},
                 {LH_SAMPLER_FACTORY, &samplers::flow_euler}, {LH_SAMPLER_FACTORY, &samplers::flow_heun})
