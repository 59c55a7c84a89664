#include <algorithm>

#include "cuda/convert.h"
#include "cuda/lora_ways.h"
#include "cuda/partial_sum.h"
#include "cuda/scaled.h"

namespace lk::cuda {

namespace {

// d [rows, rank] = alpha mask (a b): the mask is applied before d's type rounds.
void project(Cuda& cuda, GemmCall call, const lk_tensor& mask) {
  if (!present(mask)) return cuda.gemm().run(call);
  const Out to = {call.d, call.d_dtype};
  PartialSum sum{};
  float* const unmasked = cuda.scratch<float>(call.m * call.n);
  call.c = call.d = unmasked;
  call.d_dtype = LK_F32;
  cuda.gemm().run(call);
  sum.partial = unmasked;
  sum.count = 1;
  sum.rows = call.m;
  sum.cols = sum.pitch = call.n;
  sum.mask = in(mask);
  sum.out = to;
  sum_partials(cuda, sum);
}

// The sum begins with `added`, where it is there.
void onto(Cuda& cuda, GemmCall& call, const lk_tensor& added) {
  if (!present(added)) return;
  call.c = added.data;
  call.beta = 1;
  cuda.gemm().prepare(call);
}

// The adapters' matrices as cuBLASLt's products and those with a share take them.
struct Narrowed {
  const void *down, *up;
};
template <class Params>
std::vector<Narrowed> narrowed(Cuda& cuda, std::span<const Params> layers, lk_dtype type,
                               const std::vector<SharedProduct>& bases, bool forward, bool shared) {
  std::vector<Narrowed> all;
  std::vector<Scaled> jobs;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto in_type = [&](const lk_tensor& t) -> const void* {
      if (t.dtype == type) return t.data;
      void* const to = cuda.scratch<std::byte>(numel(t) * lk_dtype_size(type));
      jobs.push_back({in(t), {to, type}, numel(t)});
      return to;
    };
    const Params& p = layers[i];
    all.push_back({in_type(p.down), in_type(p.up)});
    if (!shared) continue;
    const lk_tensor& v = forward ? p.up : p.down;
    jobs.push_back({in(v), {bases[i].v, type}, numel(v), forward ? p.scale : 1});
  }
  for (size_t first = 0; first < jobs.size(); first += most_scaled)
    scale(cuda, std::span(jobs).subspan(first, std::min(jobs.size() - first, most_scaled)));
  return all;
}

}  // namespace

void gemm_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const std::vector<SharedProduct>& bases,
                  bool shared, void* workspace) {
  const lk_dtype type = layers.front().x.dtype;
  const std::vector<Narrowed> matrices = narrowed(cuda, layers, type, bases, true, shared);
  for (size_t i = 0; i < layers.size(); ++i) {
    const lk_lora_forward_params& p = layers[i];
    const Sizes n = sizes_of(p);
    GemmCall call = adapter_product(n.rows, n.rank, n.in, p.x.data, matrices[i].down, type, out(p.s), workspace);
    call.transpose_b = true;
    project(cuda, call, p.mask);
    if (shared && !cuda.measuring()) continue;
    call = adapter_product(n.rows, n.out, n.rank, as_type(cuda, p.s, type), matrices[i].up, type, out(p.y), workspace);
    call.transpose_b = true;
    call.alpha = p.scale;
    onto(cuda, call, p.added);
    cuda.gemm().run(call);
  }
}

void gemm_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& places,
                   const std::vector<SharedProduct>& bases, bool shared, const Dx& d, void* workspace) {
  const lk_dtype type = product_type(layers.front().dy.dtype, layers.front().x.dtype);
  const std::vector<Narrowed> matrices = narrowed(cuda, layers, type, bases, false, shared);
  for (size_t i = 0; i < layers.size(); ++i) {
    const lk_lora_backward_params& p = layers[i];
    const Sizes n = sizes_of(p);
    AdapterGradients gradients = gradients_of(p, n);
    gradients.s = in(p.s);
    if (present(p.dup) && !present(p.s)) {
      const Out s = {cuda.scratch<std::byte>(n.rows * n.rank * lk_dtype_size(type)), type};
      GemmCall call =
          adapter_product(n.rows, n.rank, n.in, as_type(cuda, p.x, type), matrices[i].down, type, s, workspace);
      call.transpose_b = true;
      project(cuda, call, p.mask);
      gradients.s = {s.data, s.dtype};
    }
    const Out& ds = places[i].to;
    if (needs_ds(p, d)) {
      GemmCall call =
          adapter_product(n.rows, n.rank, n.out, as_type(cuda, p.dy, type), matrices[i].up, type, ds, workspace);
      call.alpha = p.scale;
      project(cuda, call, p.mask);
      gradients.ds = {ds.data, ds.dtype};
    }
    gemm_gradients(cuda, gradients, workspace);
    if (!present(d.dx) || (shared && !cuda.measuring())) continue;
    const lk_tensor& added = i == 0 ? d.added : d.dx;
    const void* const in_type = ds.dtype == type ? ds.data : as_type(cuda, p.ds, type);
    GemmCall call = adapter_product(n.rows, n.in, n.rank, in_type, matrices[i].down, type, out(d.dx), workspace);
    onto(cuda, call, added);
    cuda.gemm().run(call);
  }
}

}  // namespace lk::cuda
