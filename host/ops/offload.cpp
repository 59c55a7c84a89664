// offload and landed: an activation on its way to host memory, where it waits for the backward pass (fetch.cpp brings
// it back). Between the two its memory on the device is still read:
//   there = offload(x)   begins, in the return queue
//   kept = landed(there, x)   from here on x may be overwritten
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer_offload(const Infer& a) { return {required(a, 0)}; }

std::vector<Desc> infer_landed(const Infer& a) {
  expect(required(a, 0).text() == required(a, 1).text(), "what has landed is not what was sent");
  return {required(a, 0)};
}

// Program orders it with the operations that wrote x, and `landed` with the end of it.
lk_status launch_offload(const Launch& l) {
  return lk_copy_async(l.context, LK_RETURN, l.out[0].data, l.in[0].data, lk_tensor_bytes(&l.in[0]));
}

lk_status launch_landed(const Launch&) { return LK_OK; }

}  // namespace

bool is_transfer(const Node& node) {
  return node.op == &fetch_op || node.op == &offer_op || node.op == &offload_op || node.op == &landed_op;
}

const OpDef offload_op{.name = "offload", .infer = infer_offload, .launch = launch_offload};
const OpDef landed_op{.name = "landed", .infer = infer_landed, .launch = launch_landed};

}  // namespace lh
