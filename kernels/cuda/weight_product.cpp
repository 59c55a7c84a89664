#include "cuda/weight_product.h"

#include "cuda/convert.h"
#include "cuda/row_codes.h"

namespace lk::cuda {

namespace {

void require_aligned(const Cuda& cuda, const lk_tensor& tensor, const char* name) {
  if (cuda.measuring() || reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0) return;
  throw Error(LK_E_INVALID, std::string("products in 8 bits: ") + name + " must be aligned to 16 bytes");
}

// Factors of the weight's rows belong to columns of the result in the forward direction. Backward they would be summed
// over, so they go into the other operand before it is rounded.
void code_operands(Cuda& cuda, const WeightProduct& p, GemmCall& call) {
  require_aligned(cuda, p.weight, "weight");
  require_aligned(cuda, p.d, p.forward ? "y" : "dx");
  const auto* const factors = static_cast<const float*>(p.scale.data);
  const bool per_row = present(p.scale) && numel(p.scale) > 1;
  const RowCodes codes =
      round_rows(cuda, p.products, p.a, p.rows, call.k, p.forward ? nullptr : factors, !p.forward && per_row);
  call.a = codes.codes;
  call.a_factors = codes.factors;
  call.a_dtype = p.products == LK_PRODUCTS_I8 ? LK_I8 : LK_F8_E4M3;
  call.b_dtype = p.weight.dtype;
  call.transpose_b = true;  // 8 bits are multiplied along rows alone
  call.b = p.forward ? p.weight.data : transpose_bytes(cuda, p.weight.data, call.k, call.n);
  call.b_factors = p.forward && per_row ? factors : repeat(cuda, p.forward ? factors : nullptr, call.n);
}

}  // namespace

GemmCall weight_product(Cuda& cuda, const WeightProduct& p) {
  GemmCall call;
  call.m = p.rows;
  call.n = p.weight.dims[p.forward ? 0 : 1];
  call.k = p.weight.dims[p.forward ? 1 : 0];
  call.d = p.d.data;
  call.d_dtype = p.d.dtype;
  call.workspace = p.workspace;
  if (p.products != LK_PRODUCTS_WIDE) {
    code_operands(cuda, p, call);
    return call;
  }
  call.a = p.a.data;
  call.b = as_type(cuda, p.weight, p.a.dtype, p.scale);
  call.a_dtype = call.b_dtype = p.a.dtype;
  call.transpose_b = p.forward;
  return call;
}

}  // namespace lk::cuda
