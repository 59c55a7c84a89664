/* For measurements alone: a slower link between host memory and the device than the machine has, so that it stands for
 * one with fewer lanes. No bit of a result changes.
 *
 * At a rate, a copy of the transfer queue or of the return queue goes in pieces of LK_LINK_PIECE bytes, and what comes
 * behind a piece in that queue waits until the copy's bytes so far have had their time since it began. Each of the two
 * has the whole rate, as links carry both ways at once. Recorded copies have it too: on a GPU a
 * kernel of one thread waits behind each piece, beside the operations of the compute queue. */
#ifndef LORA_KERNELS_LINK_H
#define LORA_KERNELS_LINK_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LK_LINK_PIECE (16 << 20)
#define LK_LINK_SLOWEST 1e6 /* bytes a second */

/* From here on; a recorded graph keeps the rate that it was recorded with. 0: the link as it is, which is the default.
 */
LK_API lk_status lk_set_link_rate(lk_context* context, double bytes_per_second);
/* That were enqueued at a rate since the context was made; recorded ones once, however often they are launched. */
LK_API int64_t lk_link_pieces(const lk_context* context);

#ifdef __cplusplus
}
#endif

#endif
