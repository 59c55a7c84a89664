// find_first: the first place of a value in each row of ids, else the last place.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& ids = required(a, 0);
  expect(ids.dtype == DType::i32 && ids.shape.rank() == 2, "ids must be int32 [B, L], are " + ids.text());
  return {{DType::i32, {ids.shape[0]}}};
}

lk_status launch(const Launch& l) {
  lk_find_first_params p{.ids = l.in[0], .index = l.out[0], .value = l.attrs.i("value")};
  return lk_find_first(l.context, &p);
}

}  // namespace

const OpDef find_first_op{.name = "find_first/1", .infer = infer, .launch = launch};

}  // namespace lh
