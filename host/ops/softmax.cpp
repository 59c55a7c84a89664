// softmax over the last axis.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) { return {required(a, 0)}; }

void gradient(Gradient& g) { g.set(0, g.emit(softmax_backward_op, {g.dout(), g.out()})); }

lk_status launch(const Launch& l) {
  lk_softmax_params p{.x = l.in[0], .y = l.out[0]};
  return lk_softmax(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_softmax_backward_params p{.dy = l.in[0], .y = l.in[1], .dx = l.out[0]};
  return lk_softmax_backward(l.context, &p);
}

}  // namespace

const OpDef softmax_op{.name = "softmax/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef softmax_backward_op{.name = "softmax_backward", .infer = infer, .launch = launch_backward};

}  // namespace lh
