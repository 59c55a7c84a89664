// A linear layer with a low-rank adapter; shapes and formulas are those of the CPU's lora.cpp. With M rows:
//   s = (x down^T) mask,  y = x weight^T + bias + scale s up^T
//   ds = scale (dy up) mask,  ddown = ds^T x,  dup = scale dy^T s,  dx = added + dy weight + ds down
// The adapter's share of y and dx is written first and the frozen layer's product added to it (beta = 1), so that its
// epilogue sees the sum; where a kernel of our own makes the product, the share is a step of its sum instead and
// nothing is written before, and it may make an activation on the way, which otherwise is a pass of its own over what
// was stored. An operation goes one of three ways: up to 8 rows by products that stream the weights; on
// tensor cores with a rank up to 32 by a pass from one wide operand to the other, backward one more over both;
// otherwise by cuBLASLt.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "cuda/convert.h"
#include "cuda/gemv.h"
#include "cuda/partial_sum.h"
#include "cuda/product_hopper.h"
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

// d = alpha op(a) op(b) + beta d for dense operands of one type.
GemmCall product(int64_t m, int64_t n, int64_t k, const void* a, const void* b, lk_dtype type, const Out& d,
                 void* workspace) {
  GemmCall call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.a = a;
  call.b = b;
  call.c = call.d = d.data;
  call.a_dtype = call.b_dtype = type;
  call.d_dtype = d.dtype;
  call.workspace = workspace;
  return call;
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

// Which way a layer with an activation goes, and so the memory it needs, is known without addresses.
void require_aligned(const Cuda& cuda, const char* op, std::initializer_list<const lk_tensor*> tensors) {
  for (const lk_tensor* t : tensors)
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t->data) % 16 != 0)
      throw Error(LK_E_INVALID, std::string(op) + ": with an activation all tensors must be aligned to 16 bytes");
}

// What the product is told of an activation. Anything but gelu by tanh of rows that lie evenly has no type.
template <class Params>
Activation activation_of(const Params& p, const lk_tensor& to, const lk_tensor& before = {}) {
  Activation activation{.from = p.activated_from};
  bool even = p.activation == LK_GELU_TANH;
  const auto columns = [&even](const lk_tensor& t) -> Activation::Columns {
    if (!present(t)) return {};
    const int64_t width = t.dims[t.rank - 1];
    const Lines lines = *lines_of(t);
    even = even && (lines.dense() || lines.line == width);
    return {t.data, lines.dense() ? width : lines.pitch};
  };
  activation.out = columns(to);
  activation.before = columns(before);
  if (even && (!present(before) || before.dtype == to.dtype)) activation.type = to.dtype;
  return activation;
}

// With the adapter's share as a step of its sum, where that is worth it: z [rows, rank] times v, which has a place and
// is still to be left there.
std::optional<SharedProduct> with_share(Cuda& cuda, const GemmCall& base, int64_t rank, const Out& z, int64_t pitch,
                                        const Activation& activation = {}, const lk_tensor& added = {}) {
  SharedProduct call{.product = base, .z = {z.data, z.dtype}, .z_pitch = pitch, .rank = rank, .activation = activation};
  if (added.dtype == base.d_dtype) call.c = added.data;
  if (!product_suits_hopper(cuda, call)) return {};
  call.v = cuda.scratch<uint16_t>(base.n * rank);
  return call;
}

// Otherwise it is added to what the share has left.
GemmCall adding(GemmCall base) {
  base.beta = 1;
  return base;
}

// Addresses, which are unknown while measuring, may decide: both ways then find their memory.
void run_base(Cuda& cuda, const GemmCall& base, const std::optional<SharedProduct>& shared) {
  if (shared) product_on_hopper(cuda, *shared);
  if (!shared || cuda.measuring()) cuda.gemm().run(adding(base));
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
  call.right = in(p.up);
  call.rank = n.rank;
  call.branch_scale = p.scale;
  call.y = out(p.y);
  gemv(cuda, call);
}

// s, and the adapter's share of y or what the product needs that takes it along.
void skinny_forward(Cuda& cuda, const lk_lora_forward_params& p, const Sizes& n, const SharedProduct* shared) {
  Through call = through_x(cuda, p, n, out(p.s));
  call.v = static_cast<const float*>(as_type(cuda, p.up, LK_F32));
  call.gain = p.scale;
  if (shared != nullptr)
    call.narrow = shared->v;
  else
    call.spread = out(p.y);
  skinny_through(cuda, call);
}

void gemm_forward(Cuda& cuda, const lk_lora_forward_params& p, const Sizes& n, void* workspace) {
  const lk_dtype type = p.x.dtype;
  GemmCall call = product(n.rows, n.rank, n.in, p.x.data, as_type(cuda, p.down, type), type, out(p.s), workspace);
  call.transpose_b = true;
  project(cuda, call, p.mask);
  call = product(n.rows, n.out, n.rank, as_type(cuda, p.s, type), as_type(cuda, p.up, type), type, out(p.y), workspace);
  call.transpose_b = true;
  call.alpha = p.scale;
  cuda.gemm().run(call);
}

// Where dx was made without it.
void add_to_dx(Cuda& cuda, const lk_lora_backward_params& p) {
  if (present(p.added)) binary(cuda, {.kind = LK_ADD, .a = p.dx, .b = p.added, .y = p.dx});
}

void few_rows_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n) {
  if (present(p.dup)) {
    In s = in(p.s);
    if (!present(p.s)) {
      s = {cuda.scratch<float>(n.rows * n.rank), LK_F32};
      gemv(cuda, few_rows_s(p, n, {const_cast<void*>(s.data), LK_F32}));
    }
    outer(cuda, n.rows, n.out, n.rank, p.scale, in(p.dy), s, out(p.dup), p.accumulate != 0);
  }
  if (!present(p.ddown) && !present(p.dx)) return;
  float* const ds = cuda.scratch<float>(n.rows * n.rank);
  GemvTransposed call;
  call.rows = n.rows;
  call.dy = in(p.dy);
  call.weight = weight_of(p.up);
  call.alpha = p.scale;
  call.mask = in(p.mask);
  call.dx = {ds, LK_F32};
  gemv_transposed(cuda, call);
  if (present(p.ddown)) outer(cuda, n.rows, n.rank, n.in, 1.0f, {ds, LK_F32}, in(p.x), out(p.ddown), p.accumulate != 0);
  if (!present(p.dx)) return;
  call = {};
  call.rows = n.rows;
  call.dy = in(p.dy);
  if (present(p.weight)) call.weight = weight_of(p.weight, p.weight_scale);
  call.weight.out = n.out;
  call.weight.in = n.in;
  call.left = {ds, LK_F32};
  call.right = in(p.down);
  call.rank = n.rank;
  call.dx = out(p.dx);
  gemv_transposed(cuda, call);
  add_to_dx(cuda, p);
}

// One pass over dy for ds and the adapter's share of dx, or what the product needs that takes it along, and one over dy
// and x for dup and ddown. Whether dx has what it is added to.
bool skinny_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Out& ds,
                     const SharedProduct* shared) {
  In s = in(p.s);
  if (present(p.dup) && !present(p.s)) {
    const Out made = {cuda.scratch<uint16_t>(n.rows * n.rank), p.x.dtype};
    skinny_through(cuda, through_x(cuda, p, n, made));
    s = {made.data, made.dtype};
  }
  const int64_t pitch = padded_rank(n.rank);
  bool added = shared != nullptr && shared->c != nullptr;
  if (ds.data != nullptr) {
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
    call.projected = ds;
    call.pitch = pitch;
    if (shared != nullptr) {
      call.narrow = shared->v;
    } else {
      call.spread = out(p.dx);
      added = present(p.added) && takes_base(cuda, call, in(p.added));
      if (added) call.base = in(p.added);
    }
    skinny_through(cuda, call);
  }
  Gather jobs[2];
  int count = 0;
  const auto add_job = [&](const lk_tensor& a, int64_t cols, const In& z, int64_t z_pitch, const lk_tensor& to) {
    Gather& job = jobs[count++];
    job.rows = n.rows;
    job.cols = cols;
    job.rank = n.rank;
    job.type = a.dtype;
    job.a = a.data;
    job.z = z;
    job.pitch = z_pitch;
    job.out = out(to);
    job.add = p.accumulate != 0;
  };
  if (present(p.dup)) {
    add_job(p.dy, n.out, s, n.rank, p.dup);
    jobs[0].alpha = p.scale;
  }
  if (present(p.ddown)) {
    add_job(p.x, n.in, {ds.data, ds.dtype}, pitch, p.ddown);
    jobs[count - 1].transposed = true;
  }
  if (count == 2 && p.x.dtype != p.dy.dtype) {
    skinny_gather(cuda, jobs[1]);
    jobs[1] = {};
  }
  if (count > 0) skinny_gather(cuda, jobs[0], jobs[1]);
  return added;
}

void gemm_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, void* workspace) {
  const lk_dtype type = product_type(p.dy.dtype, p.x.dtype);
  const float beta = p.accumulate != 0 ? 1.0f : 0.0f;
  const void *const dy = as_type(cuda, p.dy, type), *const x = as_type(cuda, p.x, type);
  const void* const down = as_type(cuda, p.down, type);
  if (present(p.dup)) {
    const void* s = nullptr;
    if (present(p.s)) {
      s = as_type(cuda, p.s, type);
    } else {
      void* const recomputed = cuda.scratch<std::byte>(n.rows * n.rank * lk_dtype_size(type));
      GemmCall call = product(n.rows, n.rank, n.in, x, down, type, {recomputed, type}, workspace);
      call.transpose_b = true;
      project(cuda, call, p.mask);
      s = recomputed;
    }
    GemmCall call = product(n.out, n.rank, n.rows, dy, s, type, out(p.dup), workspace);
    call.transpose_a = true;
    call.alpha = p.scale;
    call.beta = beta;
    cuda.gemm().run(call);
  }
  if (!present(p.ddown) && !present(p.dx)) return;
  void* const ds = cuda.scratch<std::byte>(n.rows * n.rank * lk_dtype_size(type));
  GemmCall call = product(n.rows, n.rank, n.out, dy, as_type(cuda, p.up, type), type, {ds, type}, workspace);
  call.alpha = p.scale;
  project(cuda, call, p.mask);
  if (present(p.ddown)) {
    call = product(n.rank, n.in, n.rows, ds, x, type, out(p.ddown), workspace);
    call.transpose_a = true;
    call.beta = beta;
    cuda.gemm().run(call);
  }
  if (!present(p.dx)) return;
  call = product(n.rows, n.in, n.rank, ds, down, type, out(p.dx), workspace);
  if (present(p.added)) {
    call.c = p.added.data;
    call.beta = 1;
    cuda.gemm().prepare(call);
  }
  cuda.gemm().run(call);
}

// Whether the product made what is activated, too.
bool layer_forward(Cuda& cuda, const lk_lora_forward_params& p) {
  const Sizes n = sizes_of(p);
  if (n.rows <= gemv_rows) {
    few_rows_forward(cuda, p, n);
    return false;
  }
  void* const workspace = cuda.gemm().workspace();
  const bool skinny = skinny_fits(cuda, p.x.dtype, n.rank);
  bool activated = false;
  GemmCall base;
  std::optional<SharedProduct> shared;
  if (present(p.weight)) {
    base = base_product(cuda, p, n, true, p.x, p.y, workspace);
    base.bias = p.bias.data;
    base.bias_dtype = p.bias.dtype;
    if (skinny && present(p.activated))
      shared = with_share(cuda, base, n.rank, out(p.s), n.rank, activation_of(p, p.activated));
    activated = shared.has_value();
    if (skinny && !activated) shared = with_share(cuda, base, n.rank, out(p.s), n.rank);
    if (!shared) cuda.gemm().prepare(adding(base));
  }
  if (skinny)
    skinny_forward(cuda, p, n, shared ? &*shared : nullptr);
  else
    gemm_forward(cuda, p, n, workspace);
  if (present(p.weight)) run_base(cuda, base, shared);
  return activated;
}

// `p` as it was given, but for dx, which is as x: where it is to be is known when the product does not take the
// activation along. Whether it did.
bool layer_backward(Cuda& cuda, lk_lora_backward_params& p, const lk_tensor& columns_in_front) {
  const Sizes n = sizes_of(p);
  const bool activates = present(p.dbefore);
  const auto place_dx = [&] {
    const bool same = p.activated_from == 0 && is_dense(p.dbefore);
    p.dx.data = same ? p.dbefore.data : cuda.scratch<std::byte>(n.rows * n.in * lk_dtype_size(p.dx.dtype));
  };
  if (n.rows <= gemv_rows) {
    if (activates) place_dx();
    few_rows_backward(cuda, p, n);
    return false;
  }
  void* const workspace = cuda.gemm().workspace();
  const bool skinny = skinny_fits(cuda, p.x.dtype, n.rank) && skinny_fits(cuda, p.dy.dtype, n.rank);
  const bool adds_base = present(p.weight) && (present(p.dx) || activates);
  const int64_t pitch = padded_rank(n.rank);
  Out ds{};
  if (skinny && (present(p.ddown) || present(p.dx) || activates))
    ds = {cuda.scratch<uint16_t>(n.rows * pitch), p.dy.dtype};
  GemmCall base;
  std::optional<SharedProduct> shared;
  bool activated = false;
  if (adds_base) {
    base = base_product(cuda, p, n, false, p.dy, activates ? columns_in_front : p.dx, workspace);
    if (skinny && activates) shared = with_share(cuda, base, n.rank, ds, pitch, activation_of(p, p.dbefore, p.before));
    activated = shared.has_value();
    if (activates && !activated) {
      place_dx();
      base.c = base.d = p.dx.data;
    }
    if (skinny && !activated) shared = with_share(cuda, base, n.rank, ds, pitch, {}, p.added);
    if (!shared) cuda.gemm().prepare(adding(base));
  } else if (activates) {
    place_dx();
  }
  bool added = true;
  if (skinny)
    added = skinny_backward(cuda, p, n, ds, shared ? &*shared : nullptr);
  else
    gemm_backward(cuda, p, n, workspace);
  if (adds_base) run_base(cuda, base, shared);
  if (!added) add_to_dx(cuda, p);
  return activated;
}

}  // namespace

void lora_forward(Cuda& cuda, const lk_lora_forward_params& p) {
  if (present(p.activated)) require_aligned(cuda, "lora_forward", {&p.x, &p.weight, &p.y, &p.s, &p.activated});
  if (layer_forward(cuda, p) || !present(p.activated)) return;
  const lk_tensor y = columns_of(p.y, p.activated_from, p.up.dims[0] - p.activated_from);
  unary(cuda, {.kind = p.activation, .x = y, .y = p.activated});
}

void lora_backward(Cuda& cuda, const lk_lora_backward_params& given) {
  lk_lora_backward_params p = given;
  if (!present(given.dbefore)) {
    layer_backward(cuda, p, {});
    return;
  }
  require_aligned(cuda, "lora_backward", {&p.dy, &p.weight, &p.dx, &p.before, &p.dbefore});
  p.dx = p.x;
  p.dx.data = nullptr;
  p.dx.dtype = given.dbefore.dtype;
  if (layer_backward(cuda, p, present(given.dx) ? given.dx : given.dbefore)) return;
  if (present(given.dx)) {
    lk_copy_block_params front{.x = p.dx, .y = given.dx};
    std::copy_n(given.dx.dims, given.dx.rank, front.extent);
    copy_block(cuda, front);
  }
  const lk_tensor dx = columns_of(p.dx, p.activated_from, p.down.dims[1] - p.activated_from);
  unary_backward(cuda, {.kind = p.activation, .dy = dx, .x = p.before, .dx = p.dbefore});
}

}  // namespace lk::cuda
