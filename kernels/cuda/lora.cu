// A linear layer with a low-rank adapter; shapes and formulas are those of the CPU's lora.cpp. With M rows:
//   s = (x down^T) mask,  y = x weight^T + bias + scale s up^T + added
//   ds = scale (dy up) mask,  ddown = ds^T x,  dup = scale dy^T s,  dx = added + dy weight + ds down
// The adapter's share of y and dx is written first and the frozen layer's product added to it (beta = 1), so that its
// epilogue sees the sum; where a kernel of our own makes the product, the share is a step of its sum instead and
// nothing is written before; it may make s or ds, too, where that costs less than a pass over x or dy, or an activation
// on the way, which otherwise is a pass of its own over what was stored. An operation goes one of three ways: up to 8
// rows by products that stream the weights; on tensor cores with a rank up to 32, of smaller layers up to 128, by a
// pass from one wide operand to the other, backward one more over both, which may be those of several layers of one x,
// or, of an adapter without a weight, by clusters of blocks in one (lora_clusters.h); otherwise by cuBLASLt,
// where of ranks up to 128 the product takes the share along as well. lora_ways.h has the three.
#include <algorithm>
#include <vector>

#include "cuda/convert.h"
#include "cuda/gemv.h"
#include "cuda/lora.h"
#include "cuda/lora_clusters.h"
#include "cuda/lora_ways.h"
#include "cuda/weight_product.h"
#include "lines.h"

namespace lk::cuda {

namespace {

// Whether all layers are for tensor cores and alike, so that they may go at once.
bool alike(const Cuda& cuda, std::span<const lk_lora_forward_params> layers) {
  const int64_t padded = padded_rank(sizes_of(layers.front()).rank);
  return std::all_of(layers.begin(), layers.end(), [&](const auto& p) {
    const int64_t rank = sizes_of(p).rank;
    return skinny_fits(cuda, p.x.dtype, rank) && padded_rank(rank) == padded;
  });
}
bool alike(const Cuda& cuda, std::span<const lk_lora_backward_params> layers) {
  const lk_lora_backward_params& first = layers.front();
  const int64_t padded = padded_rank(sizes_of(first).rank);
  return std::all_of(layers.begin(), layers.end(), [&](const auto& p) {
    const int64_t rank = sizes_of(p).rank;
    return skinny_fits(cuda, p.x.dtype, rank) && skinny_fits(cuda, p.dy.dtype, rank) && p.dy.dtype == first.dy.dtype &&
           padded_rank(rank) == padded;
  });
}
// Whether what cuBLASLt leaves, in rows as long as the rank, can be given to a product.
template <class Params>
bool rows_are_even(std::span<const Params> layers) {
  return std::all_of(layers.begin(), layers.end(), [](const Params& p) {
    const int64_t rank = sizes_of(p).rank;
    return even_pitch(rank) == rank;
  });
}
// And whether the skinny kernels are the quickest way for all.
template <class Params>
bool skinny_takes(std::span<const Params> layers) {
  return std::all_of(layers.begin(), layers.end(), [](const Params& p) {
    const Sizes n = sizes_of(p);
    return skinny_pays(n.rows, n.in + n.out, n.rank);
  });
}

// The frozen layer's y or dx.
template <class Params>
GemmCall base_product(Cuda& cuda, const Params& p, const Sizes& n, bool forward, const lk_tensor& a, const lk_tensor& d,
                      void* workspace) {
  GemmCall call = weight_product(cuda, {.products = p.products,
                                        .forward = forward,
                                        .rows = n.rows,
                                        .weight = p.weight,
                                        .scale = p.weight_scale,
                                        .a = a,
                                        .d = d,
                                        .workspace = workspace});
  call.c = call.d;
  return call;
}

// Which way layers with an activation go, and so the memory they need, is known without addresses.
void require_aligned(const Cuda& cuda, std::span<const lk_lora_forward_params> layers, const Activated& activated) {
  const auto require = [&](const lk_tensor& t) {
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t.data) % 16 != 0)
      throw Error(LK_E_INVALID, "lora_forward: with an activation all tensors must be aligned to 16 bytes");
  };
  for (const lk_lora_forward_params& p : layers)
    for (const lk_tensor* t : {&p.x, &p.weight, &p.y, &p.s}) require(*t);
  require(activated.to);
}

// What the product is told of an activation. Anything but gelu by tanh or gates of silu, of rows that lie evenly, has
// no type.
Activation activation_of(const Activated& a) {
  const Lines lines = *lines_of(a.to);
  const bool even = lines.dense() || lines.line == a.width(), known = a.kind == (a.gates ? LK_SILU : LK_GELU_TANH);
  return {.type = known && even ? a.to.dtype : LK_F32,
          .from = a.from,
          .gates = a.gates ? a.width() : 0,
          .data = a.to.data,
          .pitch = lines.dense() ? a.width() : lines.pitch};
}

// With the adapter's share as a step of its sum: z [rows, rank], which the product may make itself, times v.
SharedProduct shared_product(const GemmCall& base, int64_t rank, const Out& z, int64_t pitch,
                             const Projection& projection) {
  return {.product = base, .z = z, .z_pitch = pitch, .rank = rank, .projection = projection};
}

// s of an adapter's matrices, and ds of them; none with a mask, which is applied before z is rounded.
template <class Params>
Projection projection_of(const Params& p, bool forward) {
  if (present(p.mask) || p.down.dtype != LK_F32 || p.up.dtype != LK_F32) return {};
  const auto *const down = static_cast<const float*>(p.down.data), *const up = static_cast<const float*>(p.up.data);
  return forward ? Projection{.w = down, .v = up, .gain = p.scale} : Projection{.w = up, .v = down, .alpha = p.scale};
}

// What is quickest for all layers together. v, if it is to be given, has a place then and is still to be left there; so
// has z where its own rows are not even.
Shares with_shares(Cuda& cuda, std::span<SharedProduct> layers) {
  const Shares shares = shares_of(cuda, layers);
  if (shares == Shares::given || (shares == Shares::made && cuda.measuring()))
    for (SharedProduct& layer : layers) {
      const int64_t pitch = even_pitch(layer.rank);
      layer.v = cuda.scratch<uint16_t>(layer.product.n * pitch);
      if (layer.z_pitch != pitch) layer.again = cuda.scratch<uint16_t>(layer.product.m * pitch);
    }
  return shares;
}

// Otherwise it is added to what the share has left.
GemmCall adding(GemmCall base) {
  base.beta = 1;
  return base;
}

// Addresses, which are unknown while measuring, may decide: all ways then find their memory.
void run_bases(Cuda& cuda, const std::vector<SharedProduct>& bases, Shares shares) {
  if (shares != Shares::apart) product_on_hopper(cuda, bases, shares);
  if (shares != Shares::apart && !cuda.measuring()) return;
  for (const SharedProduct& base : bases) cuda.gemm().run(adding(base.product));
}

Ds place_of_ds(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Dx& d, bool skinny) {
  if (present(p.ds)) return {out(p.ds), n.rank};
  const int64_t pitch = skinny ? even_pitch(n.rank) : n.rank;
  const lk_dtype type = skinny ? p.dy.dtype : product_type(p.dy.dtype, p.x.dtype);
  return {{needs_ds(p, d) ? cuda.scratch<std::byte>(n.rows * pitch * lk_dtype_size(type)) : nullptr, type}, pitch};
}

// Whether the product made what is activated, too.
bool wide_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const Activated& wanted,
                  void* workspace) {
  const bool tensor_cores = alike(cuda, layers), skinny = tensor_cores && skinny_takes(layers);
  const lk_lora_forward_params& first = layers.front();
  std::vector<SharedProduct> bases;
  for (const lk_lora_forward_params& p : layers) {
    if (!present(p.weight)) continue;
    const Sizes n = sizes_of(p);
    GemmCall base = base_product(cuda, p, n, true, p.x, p.y, workspace);
    base.bias = p.bias.data;
    base.bias_dtype = p.bias.dtype;
    bases.push_back(shared_product(base, n.rank, out(p.s), n.rank, projection_of(p, true)));
  }
  if (!bases.empty()) bases.front().c = first.added.data;
  const bool can_share = tensor_cores && bases.size() == layers.size() && (skinny || rows_are_even(layers));
  Shares shares = Shares::apart;
  if (can_share && wanted.wanted()) {
    bases.front().activation = activation_of(wanted);
    shares = with_shares(cuda, bases);
    if (shares == Shares::apart) bases.front().activation = {};
  }
  const bool activated = shares != Shares::apart;
  if (can_share && !activated) shares = with_shares(cuda, bases);
  if (shares == Shares::apart)
    for (const SharedProduct& base : bases) cuda.gemm().prepare(adding(base.product));
  bool added = true;
  if (!skinny)
    gemm_forward(cuda, layers, bases, shares != Shares::apart, workspace);
  else if (shares != Shares::made || cuda.measuring())
    added = skinny_forward(cuda, layers, bases, shares != Shares::apart);
  run_bases(cuda, bases, shares);
  if (!added) add_to(cuda, first.y, first.added);
  return activated;
}

void wide_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const Dx& d, void* workspace) {
  const bool tensor_cores = alike(cuda, layers), skinny = tensor_cores && skinny_takes(layers);
  std::vector<Ds> ds;
  std::vector<SharedProduct> bases;
  for (const lk_lora_backward_params& p : layers) {
    const Sizes n = sizes_of(p);
    ds.push_back(place_of_ds(cuda, p, n, d, skinny));
    if (present(p.weight) && present(d.dx))
      bases.push_back(shared_product(base_product(cuda, p, n, false, p.dy, d.dx, workspace), n.rank, ds.back().to,
                                     ds.back().pitch, projection_of(p, false)));
  }
  if (!bases.empty()) bases.front().c = d.added.data;
  const bool can_share = tensor_cores && bases.size() == layers.size() && (skinny || rows_are_even(layers));
  const Shares shares = can_share ? with_shares(cuda, bases) : Shares::apart;
  if (shares == Shares::apart)
    for (const SharedProduct& base : bases) cuda.gemm().prepare(adding(base.product));
  bool added = true;
  const bool at_once = layers.size() == 1 && bases.empty() && lora_clusters(cuda, layers.front(), d);
  if (at_once && !cuda.measuring()) {
    // Addresses, which are unknown while measuring, decide: both ways then find their memory.
  } else if (skinny) {
    const std::vector<In> s = s_of(cuda, layers);
    if (present(d.dx) && shares == Shares::apart)
      added = skinny_spread(cuda, layers, ds, d);
    else if (shares != Shares::made || cuda.measuring())
      skinny_narrow(cuda, layers, ds, bases);
    if (shares == Shares::made) run_bases(cuda, bases, shares);  // with ds
    skinny_gradients(cuda, layers, s, ds);
  } else {
    gemm_backward(cuda, layers, ds, bases, shares != Shares::apart, d, workspace);
  }
  if (shares != Shares::made) run_bases(cuda, bases, shares);
  if (!added) add_to(cuda, d.dx, d.added);
}

}  // namespace

void add_to(Cuda& cuda, const lk_tensor& d, const lk_tensor& added) {
  if (present(added)) binary(cuda, {.kind = LK_ADD, .a = d, .b = added, .y = d});
}

void* lora_workspace(Cuda& cuda, const lk_tensor& x) {
  return numel(x) / x.dims[x.rank - 1] <= gemv_rows ? nullptr : cuda.gemm().workspace();
}

bool lora_at_once(const Cuda& cuda, std::span<const lk_lora_forward_params> layers) {
  return sizes_of(layers.front()).rows > gemv_rows && alike(cuda, layers);
}

bool lora_at_once(const Cuda& cuda, std::span<const lk_lora_backward_params> layers, const lk_tensor& dx) {
  const lk_lora_backward_params& first = layers.front();
  const Sizes n = sizes_of(first);
  if (n.rows <= gemv_rows || !alike(cuda, layers)) return false;
  Through share;
  share.out = n.in;
  share.type = first.dy.dtype;
  share.spread = out(dx);
  return !present(dx) || takes_base(cuda, share, in(dx));
}

void lora_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const Activated& activated,
                  void* workspace) {
  if (activated.wanted()) require_aligned(cuda, layers, activated);
  if (workspace == nullptr)
    few_rows_forward(cuda, layers.front(), sizes_of(layers.front()));
  else if (wide_forward(cuda, layers, activated, workspace))
    return;
  if (activated.wanted()) activate(cuda, layers, activated);
}

void lora_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const Dx& d, void* workspace) {
  if (workspace == nullptr) return few_rows_backward(cuda, layers.front(), sizes_of(layers.front()), d);
  wide_backward(cuda, layers, d, workspace);
}

void lora_forward(Cuda& cuda, const lk_lora_forward_params& p) {
  lora_forward(cuda, {&p, 1}, activated_of(p), lora_workspace(cuda, p.x));
}

void lora_backward(Cuda& cuda, const lk_lora_backward_params& p) {
  lora_backward(cuda, {&p, 1}, {p.dx, p.added}, lora_workspace(cuda, p.x));
}

}  // namespace lk::cuda
