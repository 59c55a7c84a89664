// Plugin "samplers": integrators of the denoising equation.
#include "samplers.h"

LORA_HOST_PLUGIN("samplers", "0.2.0", "MIT OR Apache-2.0", {LH_SAMPLER_FACTORY, &samplers::euler},
                 {LH_SAMPLER_FACTORY, &samplers::euler_ancestral}, {LH_SAMPLER_FACTORY, &samplers::euler_cfg_pp},
                 {LH_SAMPLER_FACTORY, &samplers::heun}, {LH_SAMPLER_FACTORY, &samplers::dpm_2},
                 {LH_SAMPLER_FACTORY, &samplers::ddim}, {LH_SAMPLER_FACTORY, &samplers::lms},
                 {LH_SAMPLER_FACTORY, &samplers::dpmpp_2m}, {LH_SAMPLER_FACTORY, &samplers::dpmpp_2s_ancestral},
                 {LH_SAMPLER_FACTORY, &samplers::dpmpp_sde}, {LH_SAMPLER_FACTORY, &samplers::dpmpp_2m_sde},
                 {LH_SAMPLER_FACTORY, &samplers::dpmpp_3m_sde}, {LH_SAMPLER_FACTORY, &samplers::uni_pc},
                 {LH_SAMPLER_FACTORY, &samplers::res_multistep},
                 {LH_SAMPLER_FACTORY, &samplers::res_multistep_ancestral}, {LH_SAMPLER_FACTORY, &samplers::lcm},
                 {LH_SAMPLER_FACTORY, &samplers::lcm_boundary}, {LH_SAMPLER_FACTORY, &samplers::flow_euler},
                 {LH_SAMPLER_FACTORY, &samplers::flow_heun}, {LH_SAMPLER_FACTORY, &samplers::flow_euler_stochastic})
