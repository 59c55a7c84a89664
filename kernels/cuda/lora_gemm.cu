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

// d's sum begins with what `from` has. To be called before anything is written to d: choosing an algorithm overwrites
// it.
void onto(Cuda& cuda, GemmCall& call, const lk_tensor& from) {
  if (!present(from)) return;
  call.c = from.data;
  call.beta = 1;
  cuda.gemm().prepare(call);
}

// An adapter's matrices in 16 bits: what x or dy is multiplied by, and what s or ds is, by the product that takes the
// share along, which wants it times `factor`, or by one of their own.
struct Narrowed {
  const void *first, *second;
};
template <class Params>
std::vector<Narrowed> narrowed(Cuda& cuda, std::span<const Params> layers, lk_dtype type,
                               const std::vector<SharedProduct>& bases, bool shared, bool forward) {
  static_assert(most_scaled >= 2 * LK_LORA_GROUP_MAX);
  std::vector<Narrowed> all;
  std::vector<Scaled> jobs;
  const auto in_type = [&](const lk_tensor& t) -> const void* {
    if (t.dtype == type) return t.data;
    void* const to = cuda.scratch<std::byte>(numel(t) * lk_dtype_size(type));
    jobs.push_back({in(t), {to, type}, numel(t)});
    return to;
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const Params& p = layers[i];
    const lk_tensor &first = forward ? p.down : p.up, &second = forward ? p.up : p.down;
    Narrowed& n = all.emplace_back(Narrowed{in_type(first), nullptr});
    if (shared) {
      n.second = bases[i].v;
      jobs.push_back({in(second), {bases[i].v, type}, numel(second), forward ? p.scale : 1});
    } else {
      n.second = in_type(second);
    }
  }
  scale(cuda, jobs);
  return all;
}

}  // namespace

void gemm_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const std::vector<SharedProduct>& bases,
                  bool shared, void* workspace) {
  const lk_dtype type = layers.front().x.dtype;
  const std::vector<Narrowed> matrices = narrowed(cuda, layers, type, bases, shared, true);
  for (size_t i = 0; i < layers.size(); ++i) {
    const lk_lora_forward_params& p = layers[i];
    const Sizes n = sizes_of(p);
    GemmCall call = adapter_product(n.rows, n.rank, n.in, p.x.data, matrices[i].first, type, out(p.s), workspace);
    call.transpose_b = true;
    project(cuda, call, p.mask);
    if (shared && !cuda.measuring()) continue;
    call =
        adapter_product(n.rows, n.out, n.rank, as_type(cuda, p.s, type), matrices[i].second, type, out(p.y), workspace);
    call.transpose_b = true;
    call.alpha = p.scale;
    onto(cuda, call, p.added);
    cuda.gemm().run(call);
  }
}

void gemm_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& places,
                   const std::vector<SharedProduct>& bases, bool shared, const Dx& d, void* workspace) {
  const lk_dtype type = product_type(layers.front().dy.dtype, layers.front().x.dtype);
  const std::vector<Narrowed> matrices = narrowed(cuda, layers, type, bases, shared, false);
  const bool spreads = present(d.dx) && (!shared || cuda.measuring());
  std::vector<GemmCall> spreading;  // each onto what is there before it
  for (size_t i = 0; i < layers.size() && spreads; ++i) {
    const Sizes n = sizes_of(layers[i]);
    const Out& ds = places[i].to;
    const void* const in_type =
        ds.dtype == type ? ds.data : cuda.scratch<std::byte>(n.rows * n.rank * lk_dtype_size(type));
    GemmCall& call = spreading.emplace_back(
        adapter_product(n.rows, n.in, n.rank, in_type, matrices[i].second, type, out(d.dx), workspace));
    onto(cuda, call, i == 0 ? d.added : d.dx);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const lk_lora_backward_params& p = layers[i];
    const Sizes n = sizes_of(p);
    AdapterGradients gradients = gradients_of(p, n);
    gradients.s = in(p.s);
    if (present(p.dup) && !present(p.s)) {
      const Out s = {cuda.scratch<std::byte>(n.rows * n.rank * lk_dtype_size(type)), type};
      GemmCall call =
          adapter_product(n.rows, n.rank, n.in, as_type(cuda, p.x, type), matrices[i].second, type, s, workspace);
      call.transpose_b = true;
      project(cuda, call, p.mask);
      gradients.s = {s.data, s.dtype};
    }
    const Out& ds = places[i].to;
    if (needs_ds(p, d)) {
      GemmCall call =
          adapter_product(n.rows, n.rank, n.out, as_type(cuda, p.dy, type), matrices[i].first, type, ds, workspace);
      call.alpha = p.scale;
      project(cuda, call, p.mask);
      gradients.ds = {ds.data, ds.dtype};
    }
    gemm_gradients(cuda, gradients, workspace);
    if (!spreads) continue;
    if (ds.dtype != type)
      convert(cuda, {ds.data, ds.dtype, n.rank, 0}, {spreading[i].a, type, n.rank, 0}, 1, n.rows, n.rank);
    cuda.gemm().run(spreading[i]);
  }
}

}  // namespace lk::cuda
