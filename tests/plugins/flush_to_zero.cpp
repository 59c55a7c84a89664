// Does on loading what a library linked with -ffast-math does: switches the processor to flush-to-zero.
#include "lora_host/lora_host.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
static const bool switched = (_mm_setcsr(_mm_getcsr() | 0x8040), true);
#endif

LORA_HOST_PLUGIN("flush_to_zero", "0", "MIT", {"none", nullptr})
