// The three ways of a layer with an adapter, between which lora.cu chooses.
#pragma once

#include <span>
#include <vector>

#include "cuda/lora.h"
#include "cuda/lora_gradients.h"
#include "cuda/product_hopper.h"
#include "cuda/skinny.h"

namespace lk::cuda {

struct Sizes {
  int64_t rows, in, out, rank;
};

template <class Params>
Sizes sizes_of(const Params& p) {
  const int64_t in = p.down.dims[1];
  return {numel(p.x) / in, in, p.up.dims[0], p.down.dims[0]};
}

// Where a layer's ds is, if anywhere: the caller's, or scratch, for the skinny kernels with even_pitch.
struct Ds {
  Out to{};
  int64_t pitch = 0;
};

// What both gradients are made of, but for s and ds.
inline AdapterGradients gradients_of(const lk_lora_backward_params& p, const Sizes& n) {
  return {.rows = n.rows,
          .in = n.in,
          .out = n.out,
          .rank = n.rank,
          .x = p.x,
          .dy = p.dy,
          .ds_pitch = n.rank,
          .scale = p.scale,
          .add = p.accumulate != 0,
          .ddown = p.ddown,
          .dup = p.dup};
}

// Whether something is made of ds, or it is wanted itself.
inline bool needs_ds(const lk_lora_backward_params& p, const Dx& d) {
  return present(p.ds) || present(p.ddown) || present(d.dx);
}

// Where y or dx was made without it.
void add_to(Cuda& cuda, const lk_tensor& d, const lk_tensor& added);

// Up to 8 rows, by products that stream the weights (lora_few_rows.cu).
void few_rows_forward(Cuda& cuda, const lk_lora_forward_params& p, const Sizes& n);
void few_rows_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Dx& d);

// By passes over the wide operands (lora_skinny.cu).

// s, and the adapters' shares of y or what the product needs that takes them along. Whether y has what it is added to,
// or will get it from the product.
bool skinny_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const std::vector<SharedProduct>& bases,
                    bool shared);
// The s that dup is made of, and made again where a layer lacks it.
std::vector<In> s_of(Cuda& cuda, std::span<const lk_lora_backward_params> layers);
// ds, and the adapters' shares of dx one after the other. Whether dx has what it is added to.
bool skinny_spread(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& ds, const Dx& d);
// ds, and what the products need that take the adapters' shares of dx along.
void skinny_narrow(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& ds,
                   const std::vector<SharedProduct>& bases);
// One pass over dy and x for dup and ddown.
void skinny_gradients(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<In>& s,
                      const std::vector<Ds>& ds);

// By cuBLASLt (lora_gemm.cu). `shared`: the products in `bases` take the adapters' shares along.

// s, and the adapters' shares of y where the products do not take them along.
void gemm_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const std::vector<SharedProduct>& bases,
                  bool shared, void* workspace);
// Gradients, and the adapters' shares of dx, one after the other, where the products do not take them along.
void gemm_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& places,
                   const std::vector<SharedProduct>& bases, bool shared, const Dx& d, void* workspace);

}  // namespace lk::cuda
