// embedding: rows of a table by id, in the type the host computes in.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &ids = required(a, 0), &table = required(a, 1);
  expect(ids.dtype == DType::i32, "ids must be int32, are " + ids.text());
  expect_weight(table, "table");
  expect(table.shape.rank() == 2, "table must be [V, D], is " + table.text());
  std::vector<int64_t> dims(ids.shape.dims().begin(), ids.shape.dims().end());
  dims.push_back(table.shape[1]);
  return {{a.compute, Shape(std::move(dims))}};
}

lk_status launch(const Launch& l) {
  lk_embedding_params p{};
  p.ids = l.in[0];
  p.table = l.in[1];
  p.y = l.out[0];
  return lk_embedding(l.context, &p);
}

}  // namespace

const OpDef embedding_op{.name = "embedding/1", .infer = infer, .launch = launch};

}  // namespace lh
