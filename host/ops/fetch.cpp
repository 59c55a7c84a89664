// fetch: a weight or an activation on its way from host memory, or a weight from another process, to the arena, beside
// the operations that come before its first reader. offer: the other side of it, a weight of this process that another
// one fetches.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer_fetch(const Infer& a) { return {required(a, 0)}; }

// In the transfer queue: Program orders it with those who had the memory before and those who read it then.
lk_status launch_fetch(const Launch& l) {
  return lk_copy_async(l.context, LK_TRANSFER, l.out[0].data, l.in[0].data, lk_tensor_bytes(&l.out[0]));
}

std::vector<Desc> infer_offer(const Infer&) { return {}; }

// Program passes it on where there is something to do.
lk_status launch_offer(const Launch&) { return LK_OK; }

}  // namespace

const OpDef fetch_op{.name = "fetch", .infer = infer_fetch, .launch = launch_fetch};
const OpDef offer_op{.name = "offer", .infer = infer_offer, .launch = launch_offer};

}  // namespace lh
