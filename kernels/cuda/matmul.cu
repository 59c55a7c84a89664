#include "cuda/convert.h"
#include "cuda/gemm.h"

namespace lk::cuda {

void matmul(Cuda& cuda, const lk_matmul_params& p) {
  const int32_t rank = p.a.rank;
  const lk_dtype type = product_type(p.a.dtype, p.b.dtype);
  GemmCall call;
  call.m = p.c.dims[rank - 2];
  call.n = p.c.dims[rank - 1];
  call.k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  call.batch = numel(p.c) / (call.m * call.n);
  call.a = as_type(cuda, p.a, type);
  call.b = as_type(cuda, p.b, type);
  call.d = p.c.data;
  call.a_dtype = call.b_dtype = type;
  call.d_dtype = p.c.dtype;
  call.transpose_a = p.transpose_a != 0;
  call.transpose_b = p.transpose_b != 0;
  call.stride_a = call.m * call.k;
  call.stride_b = call.k * call.n;
  call.stride_d = call.m * call.n;
  cuda.gemm().run(call);
}

}  // namespace lk::cuda
