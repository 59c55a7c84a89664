// A linear layer with a low-rank adapter; shapes and formulas are those of the CPU's lora.cpp. With M rows:
//   s = (x down^T) mask,  y = x weight^T + bias + scale s up^T + added
//   ds = scale (dy up) mask,  ddown = ds^T x,  dup = scale dy^T s,  dx = added + dy weight + ds down
// The adapter's share of y and dx is written first and the frozen layer's product added to it (beta = 1), so that its
// epilogue sees the sum; where a kernel of our own makes the product, the share is a step of its sum instead and
// nothing is written before; it may make s or ds, too, where that costs less than a pass over x or dy, or an activation
// on the way, which otherwise is a pass of its own over what was stored. An operation goes one of three ways: up to 8
// rows by products that stream the weights; on tensor cores with a rank up to 32, of smaller layers up to 128, by a
// pass from one wide operand to the other, backward one more over both, which may be those of several layers of one x,
// or, of an adapter without a weight, by clusters of blocks in one (lora_clusters.h); otherwise by cuBLASLt.
#include <algorithm>
#include <string>
#include <vector>

#include "cuda/convert.h"
#include "cuda/gemv.h"
#include "cuda/lora.h"
#include "cuda/lora_clusters.h"
#include "cuda/lora_gradients.h"
#include "cuda/partial_sum.h"
#include "cuda/product_hopper.h"
#include "cuda/scaled.h"
#include "cuda/skinny.h"
#include "cuda/weight_product.h"
#include "lines.h"

namespace lk::cuda {

namespace {

struct Sizes {
  int64_t rows, in, out, rank;
};

template <class Params>
Sizes sizes_of(const Params& p) {
  const int64_t in = p.down.dims[1];
  return {numel(p.x) / in, in, p.up.dims[0], p.down.dims[0]};
}

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

// What is quickest for all layers together. v, if it is to be given, has a place then and is still to be left there.
Shares with_shares(Cuda& cuda, std::span<SharedProduct> layers) {
  const Shares shares = shares_of(cuda, layers);
  if (shares == Shares::given || (shares == Shares::made && cuda.measuring()))
    for (SharedProduct& layer : layers) layer.v = cuda.scratch<uint16_t>(layer.product.n * layer.rank);
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

// What s is computed from, in both directions.
template <class Params>
Gemv few_rows_s(const Params& p, const Sizes& n, const Out& s) {
  Gemv call;
  call.rows = n.rows;
  call.x = in(p.x);
  call.weight = weight_of(p.down);
  call.mask = in(p.mask);
  call.y = s;
  return call;
}

// From x to s and, with an `up`, to the adapter's share of y.
template <class Params>
Through through_x(Cuda& cuda, const Params& p, const Sizes& n, const Out& s) {
  Through call;
  call.rows = n.rows;
  call.in = n.in;
  call.out = n.out;
  call.rank = n.rank;
  call.type = p.x.dtype;
  call.a = p.x.data;
  call.w = static_cast<const float*>(as_type(cuda, p.down, LK_F32));
  call.mask = in(p.mask);
  call.projected = s;
  call.pitch = n.rank;
  return call;
}

// Where y or dx was made without it.
void add_to(Cuda& cuda, const lk_tensor& d, const lk_tensor& added) {
  if (present(added)) binary(cuda, {.kind = LK_ADD, .a = d, .b = added, .y = d});
}

void few_rows_forward(Cuda& cuda, const lk_lora_forward_params& p, const Sizes& n) {
  gemv(cuda, few_rows_s(p, n, out(p.s)));
  Gemv call;
  call.rows = n.rows;
  call.x = in(p.x);
  if (present(p.weight)) call.weight = weight_of(p.weight, p.weight_scale);
  call.weight.out = n.out;
  call.weight.in = n.in;
  call.bias = in(p.bias);
  call.left = in(p.s);
  call.left_comes = true;
  call.right = in(p.up);
  call.rank = n.rank;
  call.branch_scale = p.scale;
  call.y = out(p.y);
  gemv(cuda, call);
  add_to(cuda, p.y, p.added);
}

// s, and the adapters' shares of y or what the product needs that takes them along. Whether y has what it is added to,
// or will get it from the product.
bool skinny_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const std::vector<SharedProduct>& bases,
                    bool shared) {
  bool added = shared;
  std::vector<Through> jobs;
  for (size_t i = 0; i < layers.size(); ++i) {
    const lk_lora_forward_params& p = layers[i];
    Through job = through_x(cuda, p, sizes_of(p), out(p.s));
    job.v = static_cast<const float*>(as_type(cuda, p.up, LK_F32));
    job.gain = p.scale;
    if (shared)
      job.narrow = bases[i].v;
    else
      job.spread = out(p.y);
    if (!shared && present(p.added) && takes_base(cuda, job, in(p.added))) {
      job.base = in(p.added);
      added = true;
    }
    jobs.push_back(job);
  }
  skinny_through(cuda, jobs);
  return added;
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

// s, and the adapters' shares of y where the products do not take them along.
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

// What both gradients are made of, but for s and ds.
AdapterGradients gradients_of(const lk_lora_backward_params& p, const Sizes& n) {
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
bool needs_ds(const lk_lora_backward_params& p, const Dx& d) {
  return present(p.ds) || present(p.ddown) || present(d.dx);
}

void few_rows_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Dx& d) {
  AdapterGradients gradients = gradients_of(p, n);
  gradients.s = in(p.s);
  if (present(p.dup) && !present(p.s)) {
    float* const s = cuda.scratch<float>(n.rows * n.rank);
    gemv(cuda, few_rows_s(p, n, {s, LK_F32}));
    gradients.s = {s, LK_F32};
  }
  if (needs_ds(p, d)) {
    GemvTransposed call;
    call.rows = n.rows;
    call.dy = in(p.dy);
    call.weight = weight_of(p.up);
    call.alpha = p.scale;
    call.mask = in(p.mask);
    call.dx = present(p.ds) ? out(p.ds) : Out{cuda.scratch<float>(n.rows * n.rank), LK_F32};
    gemv_transposed(cuda, call);
    gradients.ds = {call.dx.data, call.dx.dtype};
  }
  gradients_of_few_rows(cuda, gradients);
  if (!present(d.dx)) return;
  GemvTransposed call;
  call.rows = n.rows;
  call.dy = in(p.dy);
  if (present(p.weight)) call.weight = weight_of(p.weight, p.weight_scale);
  call.weight.out = n.out;
  call.weight.in = n.in;
  call.left = gradients.ds;
  call.right = in(p.down);
  call.rank = n.rank;
  call.dx = out(d.dx);
  gemv_transposed(cuda, call);
  add_to(cuda, d.dx, d.added);
}

// The s that dup is made of, and made again where a layer lacks it.
std::vector<In> s_of(Cuda& cuda, std::span<const lk_lora_backward_params> layers) {
  std::vector<In> all;
  std::vector<Through> jobs;
  for (const lk_lora_backward_params& p : layers) {
    all.push_back(in(p.s));
    if (!present(p.dup) || present(p.s)) continue;
    const Sizes n = sizes_of(p);
    const Out made = {cuda.scratch<uint16_t>(n.rows * n.rank), p.x.dtype};
    all.back() = {made.data, made.dtype};
    jobs.push_back(through_x(cuda, p, n, made));
  }
  if (!jobs.empty()) skinny_through(cuda, jobs);
  return all;
}

// Where a layer's ds is, if anywhere: the caller's, or scratch, for the skinny kernels with the padded rank's zeros.
struct Ds {
  Out to{};
  int64_t pitch = 0;
};
Ds place_of_ds(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Dx& d, bool skinny) {
  if (present(p.ds)) return {out(p.ds), n.rank};
  const int64_t pitch = skinny ? padded_rank(n.rank) : n.rank;
  const lk_dtype type = skinny ? p.dy.dtype : product_type(p.dy.dtype, p.x.dtype);
  return {{needs_ds(p, d) ? cuda.scratch<std::byte>(n.rows * pitch * lk_dtype_size(type)) : nullptr, type}, pitch};
}

// From dy to ds and, with a `spread`, to the adapter's share of dx.
Through through_dy(Cuda& cuda, const lk_lora_backward_params& p, const Ds& ds) {
  const Sizes n = sizes_of(p);
  Through call;
  call.rows = n.rows;
  call.in = n.out;
  call.out = n.in;
  call.rank = n.rank;
  call.type = p.dy.dtype;
  call.a = p.dy.data;
  call.w = static_cast<const float*>(as_type(cuda, p.up, LK_F32));
  call.v = static_cast<const float*>(as_type(cuda, p.down, LK_F32));
  call.by_rank = true;
  call.alpha = p.scale;
  call.mask = in(p.mask);
  call.projected = ds.to;
  call.pitch = ds.pitch;
  return call;
}

// ds, and the adapters' shares of dx one after the other. Whether dx has what it is added to.
bool skinny_spread(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& ds,
                   const Dx& d) {
  bool added = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    Through job = through_dy(cuda, layers[i], ds[i]);
    job.spread = out(d.dx);
    if (i > 0) {
      job.base = in(d.dx);
    } else if (present(d.added) && takes_base(cuda, job, in(d.added))) {
      job.base = in(d.added);
      added = true;
    }
    skinny_through(cuda, job);
  }
  return added;
}

// ds, and what the products need that take the adapters' shares of dx along.
void skinny_narrow(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& ds,
                   const std::vector<SharedProduct>& bases) {
  std::vector<Through> jobs;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (ds[i].to.data == nullptr) continue;
    jobs.push_back(through_dy(cuda, layers[i], ds[i]));
    if (!bases.empty()) jobs.back().narrow = bases[i].v;
  }
  if (!jobs.empty()) skinny_through(cuda, jobs);
}

// One pass over dy and x for dup and ddown.
void skinny_gradients(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<In>& s,
                      const std::vector<Ds>& ds) {
  std::vector<AdapterGradients> all;
  for (size_t i = 0; i < layers.size(); ++i) {
    AdapterGradients& g = all.emplace_back(gradients_of(layers[i], sizes_of(layers[i])));
    g.s = s[i];
    g.ds = {ds[i].to.data, ds[i].to.dtype};
    g.ds_pitch = ds[i].pitch;
  }
  skinny_gradients(cuda, all);
}

// Gradients, and the adapters' shares of dx, one after the other, where the products do not take them along.
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
  const bool can_share = tensor_cores && bases.size() == layers.size();
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
  const bool can_share = tensor_cores && bases.size() == layers.size();
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
