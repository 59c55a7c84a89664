/* What each call of a context did: the kernels that ran for it, those that were passed over and why, and the time.
 *
 * For a program of one's own without a line of code: where the environment variable LORA_VERBOSE has the word
 * `dispatch` when a context is made, every call writes a line to stderr. */
#ifndef LORA_KERNELS_TRACE_H
#define LORA_KERNELS_TRACE_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_call_trace {
  int64_t struct_size;     /* of this struct in the library that calls: later versions add fields at its end */
  const char* op;          /* "lora_forward" */
  const char* kernels;     /* what ran, in order, separated by "; ": own kernels, and calls of libraries with sizes */
  const char* passed_over; /* what would have come before it, and why it did not, separated by "; "; or empty */
  double milliseconds;     /* from before the call to its end on the device; -1 while it is recorded */
} lk_call_trace;

/* The texts are valid during the call. It may not call the library with the same context. */
typedef void (*lk_trace_function)(void* user, const lk_call_trace* call);

/* From here on, `trace` is called after each operation that succeeds; NULL: nothing is. Measuring is no operation.
 * Every call is then waited for, so that a traced program takes longer as a whole. */
LK_API lk_status lk_set_trace(lk_context* context, lk_trace_function trace, void* user);

#ifdef __cplusplus
}
#endif

#endif
