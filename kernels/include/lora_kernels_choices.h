/* Which algorithms of matrix products were chosen by time. Another algorithm adds in another order, so two processes
 * give the same bits, on one kind of GPU with the same libraries, where they use the same choices: those of a file that
 * both have (tuning_cache), or those that the one says and the other takes.
 *
 * On the CPU nothing is chosen by time. */
#ifndef LORA_KERNELS_CHOICES_H
#define LORA_KERNELS_CHOICES_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From here on: 1, which is the default, chooses by time as lk_context_create says; 0 takes the library's first guess,
 * the same on every machine of that kind, for what is computed once and kept. */
LK_API lk_status lk_choose_by_time(lk_context* context, int32_t on);
/* What this context has chosen by time and used, or taken: lines of text that end with a sum of theirs. *out is valid
 * until the next call of this function, "" where there is nothing. */
LK_API lk_status lk_get_choices(lk_context* context, const char** out);
/* Uses these from here on, in place of its own and of those that it took before; graphs that were recorded keep theirs.
 * Lines of another kind of GPU or of another version of the library are passed over. LK_E_INVALID where a line is
 * damaged: nothing is taken then. */
LK_API lk_status lk_take_choices(lk_context* context, const char* lines);

#ifdef __cplusplus
}
#endif

#endif
