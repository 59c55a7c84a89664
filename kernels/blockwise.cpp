// lk_quantize_blockwise and lk_dequantize_blockwise: 8-bit codes with a scale for each block of 256 elements.
#include "blockwise_map.h"
#include "check.h"
#include "dispatch.h"

namespace {

void check_blocks(const lk::Check& check, lk::Arg codes, lk::Arg scales, lk::Arg values) {
  check.dtype(values, LK_F32);
  check.dtype(codes, LK_U8);
  check.shape(codes, lk::shape_of(*values.tensor));
  check.dtype(scales, LK_F32);
  check.shape(scales, {(lk_numel(values.tensor) + lk::blockwise_size - 1) / lk::blockwise_size});
}

void check_quantize_blockwise(const lk_quantize_blockwise_params& p) {
  const lk::Check check("quantize_blockwise");
  check_blocks(check, LK_ARG(p, codes), LK_ARG(p, scales), LK_ARG(p, x));
  check.separate(LK_ARG(p, codes), {LK_ARG(p, x), LK_ARG(p, scales)});
  check.separate(LK_ARG(p, scales), {LK_ARG(p, x)});
}

void check_dequantize_blockwise(const lk_dequantize_blockwise_params& p) {
  const lk::Check check("dequantize_blockwise");
  check_blocks(check, LK_ARG(p, codes), LK_ARG(p, scales), LK_ARG(p, y));
  check.separate(LK_ARG(p, y), {LK_ARG(p, codes), LK_ARG(p, scales)});
}

}  // namespace

LK_DEFINE_OP(quantize_blockwise, lk_quantize_blockwise_params)
LK_DEFINE_OP(dequantize_blockwise, lk_dequantize_blockwise_params)
