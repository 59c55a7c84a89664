// Plugin "schedules": where the noise levels of a sampling run lie.
#include "schedules.h"

LORA_HOST_PLUGIN("schedules", "0.1.0", "MIT OR Apache-2.0", {LH_SCHEDULE_FACTORY, &schedules::normal},
                 {LH_SCHEDULE_FACTORY, &schedules::simple}, {LH_SCHEDULE_FACTORY, &schedules::sgm_uniform},
                 {LH_SCHEDULE_FACTORY, &schedules::ddim_uniform}, {LH_SCHEDULE_FACTORY, &schedules::linspace},
                 {LH_SCHEDULE_FACTORY, &schedules::leading}, {LH_SCHEDULE_FACTORY, &schedules::trailing},
                 {LH_SCHEDULE_FACTORY, &schedules::karras}, {LH_SCHEDULE_FACTORY, &schedules::exponential},
                 {LH_SCHEDULE_FACTORY, &schedules::polyexponential}, {LH_SCHEDULE_FACTORY, &schedules::beta},
                 {LH_SCHEDULE_FACTORY, &schedules::linear_quadratic}, {LH_SCHEDULE_FACTORY, &schedules::kl_optimal},
                 {LH_SCHEDULE_FACTORY, &schedules::shift_terminal}, {LH_SCHEDULE_FACTORY, &schedules::mu_by_steps},
                 {LH_SCHEDULE_FACTORY, &schedules::lcm}, {LH_SCHEDULE_FACTORY, &schedules::table},
                 {LH_SCHEDULE_FACTORY, &schedules::logit_normal})
