// quantize_blockwise, dequantize_blockwise: a float32 tensor as 8-bit codes with one float32 scale for each 256
// elements.
#include "ops/ops.h"

namespace lh {
namespace {

Shape blocks_of(const Shape& shape) { return {(shape.numel() + 255) / 256}; }

std::vector<Desc> infer_quantize(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.dtype == DType::f32, "x must be float32, is " + x.text());
  return {{DType::u8, x.shape}, {DType::f32, blocks_of(x.shape)}};
}

std::vector<Desc> infer_dequantize(const Infer& a) {
  const Desc &codes = required(a, 0), &scales = required(a, 1);
  expect(codes.dtype == DType::u8, "codes must be uint8, is " + codes.text());
  const Desc want{DType::f32, blocks_of(codes.shape)};
  expect(scales == want, "scales must be " + want.text() + " (one for each 256 codes), is " + scales.text());
  return {{DType::f32, codes.shape}};
}

lk_status quantize(const Launch& l) {
  lk_quantize_blockwise_params p{.x = l.in[0], .codes = l.out[0], .scales = l.out[1]};
  p.is_signed = l.attrs.i("is_signed") != 0;
  return lk_quantize_blockwise(l.context, &p);
}

lk_status dequantize(const Launch& l) {
  lk_dequantize_blockwise_params p{.codes = l.in[0], .scales = l.in[1], .y = l.out[0]};
  p.is_signed = l.attrs.i("is_signed") != 0;
  return lk_dequantize_blockwise(l.context, &p);
}

}  // namespace

const OpDef quantize_blockwise_op{.name = "quantize_blockwise/1", .infer = infer_quantize, .launch = quantize};
const OpDef dequantize_blockwise_op{.name = "dequantize_blockwise/1", .infer = infer_dequantize, .launch = dequantize};

}  // namespace lh
