// Ways of a product by what its batches have in common: one operand, which makes it one tall product or leaves it in
// shared memory (matmul_one_left.cu); nothing but the sum (matmul_summed.cu); or nothing, for cuBLASLt.
#include "cuda/convert.h"
#include "cuda/gemm.h"
#include "cuda/matmul_ways.h"

namespace lk::cuda {

namespace {

BatchedProduct described(const lk_matmul_params& p) {
  const int32_t rank = p.a.rank;
  BatchedProduct d{};
  d.m = p.c.dims[rank - 2];
  d.n = p.c.dims[rank - 1];
  d.k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  const int64_t batch_a = numel(p.a) / (d.m * d.k), batch_b = numel(p.b) / (d.k * d.n);
  d.batch = std::max(batch_a, batch_b);
  d.a = in(p.a);
  d.b = in(p.b);
  d.c = out(p.c);
  d.transpose_a = p.transpose_a != 0;
  d.transpose_b = p.transpose_b != 0;
  d.stride_a = batch_a == 1 ? 0 : d.m * d.k;
  d.stride_b = batch_b == 1 ? 0 : d.k * d.n;
  d.sum = d.batch > 1 && numel(p.c) == d.m * d.n;
  return d;
}

// Batches that lie so that they are one product: rows of one right matrix, or steps of one sum.
BatchedProduct joined(BatchedProduct d) {
  if (!d.sum && d.stride_b == 0 && !d.transpose_a) {
    d.m *= d.batch;
    d.batch = 1;
  } else if (d.sum && d.stride_a != 0 && d.stride_b != 0 && d.transpose_a && !d.transpose_b) {
    d.k *= d.batch;
    d.batch = 1;
    d.sum = false;
  }
  return d;
}

// The smaller operand is rounded, if it has to be, so that the larger one is not copied.
lk_dtype type_of_product(const BatchedProduct& d) {
  if ((d.stride_a == 0) == (d.stride_b == 0)) return product_type(d.a.dtype, d.b.dtype);
  return d.stride_a == 0 ? d.b.dtype : d.a.dtype;
}

void run_gemm(Cuda& cuda, const BatchedProduct& d, const lk_tensor& a, const lk_tensor& b) {
  const lk_dtype type = type_of_product(d);
  GemmCall call;
  call.m = d.m;
  call.n = d.n;
  call.k = d.k;
  call.batch = d.batch;
  call.a = as_type(cuda, a, type);
  call.b = as_type(cuda, b, type);
  call.d = d.c.data;
  call.a_dtype = call.b_dtype = type;
  call.d_dtype = d.c.dtype;
  call.transpose_a = d.transpose_a;
  call.transpose_b = d.transpose_b;
  call.stride_a = d.stride_a;
  call.stride_b = d.stride_b;
  call.stride_d = d.m * d.n;
  cuda.gemm().run(call);
}

}  // namespace

// While measuring, a way that addresses may rule out is not the last.
void matmul(Cuda& cuda, const lk_matmul_params& p) {
  const BatchedProduct d = joined(described(p));
  const bool done = d.batch > 1 && (d.sum ? matmul_summed(cuda, d) : matmul_of_one_left(cuda, d));
  if (done && !cuda.measuring()) return;
  if (d.sum)
    matmul_summed_wide(cuda, d);
  else
    run_gemm(cuda, d, p.a, p.b);
}

}  // namespace lk::cuda
