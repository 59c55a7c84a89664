#include <algorithm>
#include <vector>

#include "cuda/convert.h"
#include "cuda/gemv.h"
#include "cuda/lora_gradients.h"
#include "cuda/skinny.h"

namespace lk::cuda {

namespace {

Gather gather_of(const AdapterGradients& g) {
  Gather job;
  job.rows = g.rows;
  job.rank = g.rank;
  job.add = g.add;
  return job;
}

Gather dup_of(const AdapterGradients& g) {
  Gather job = gather_of(g);
  job.cols = g.out;
  job.type = g.dy.dtype;
  job.a = g.dy.data;
  job.z = g.s;
  job.pitch = g.rank;
  job.alpha = g.scale;
  job.out = out(g.dup);
  return job;
}

Gather ddown_of(const AdapterGradients& g) {
  Gather job = gather_of(g);
  job.cols = g.in;
  job.type = g.x.dtype;
  job.a = g.x.data;
  job.z = g.ds;
  job.pitch = g.ds_pitch;
  job.out = out(g.ddown);
  job.transposed = true;
  return job;
}

AdapterGradients gradients_of(const lk_lora_gradients_layer& p) {
  const int64_t in_width = p.x.dims[p.x.rank - 1], rank = p.s.dims[p.s.rank - 1];
  return {.rows = numel(p.x) / in_width,
          .in = in_width,
          .out = p.dy.dims[p.dy.rank - 1],
          .rank = rank,
          .x = p.x,
          .dy = p.dy,
          .s = in(p.s),
          .ds = in(p.ds),
          .ds_pitch = rank,
          .scale = p.scale,
          .add = p.accumulate != 0,
          .ddown = p.ddown,
          .dup = p.dup};
}

}  // namespace

GemmCall adapter_product(int64_t m, int64_t n, int64_t k, const void* a, const void* b, lk_dtype type, const Out& d,
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

void gradients_of_few_rows(Cuda& cuda, const AdapterGradients& g) {
  if (present(g.dup)) outer(cuda, g.rows, g.out, g.rank, g.scale, in(g.dy), g.s, out(g.dup), g.add);
  if (present(g.ddown)) outer(cuda, g.rows, g.rank, g.in, 1.0f, g.ds, in(g.x), out(g.ddown), g.add);
}

void skinny_gradients(Cuda& cuda, std::span<const AdapterGradients> layers) {
  std::vector<Gather> jobs, more;  // of x, where it has another type
  for (const AdapterGradients& g : layers) {
    if (present(g.dup)) jobs.push_back(dup_of(g));
    if (present(g.ddown)) (g.x.dtype == g.dy.dtype ? jobs : more).push_back(ddown_of(g));
  }
  for (const std::vector<Gather>& of_a_type : {more, jobs})
    if (!of_a_type.empty()) skinny_gather(cuda, of_a_type);
}

void gemm_gradients(Cuda& cuda, const AdapterGradients& g, void* workspace) {
  const lk_dtype type = product_type(g.dy.dtype, g.x.dtype);
  const auto narrow = [&](const In& values) -> const void* {
    if (values.dtype == type) return values.data;
    void* const copy = cuda.scratch<std::byte>(g.rows * g.rank * lk_dtype_size(type));
    convert(cuda, {values.data, values.dtype, g.rank, 0}, {copy, type, g.rank, 0}, 1, g.rows, g.rank);
    return copy;
  };
  // d [m, n] = alpha a^T b
  const auto gather = [&](int64_t m, int64_t n, const void* a, const void* b, float alpha, const Out& d) {
    GemmCall call = adapter_product(m, n, g.rows, a, b, type, d, workspace);
    call.transpose_a = true;
    call.alpha = alpha;
    call.beta = g.add ? 1.0f : 0.0f;
    cuda.gemm().run(call);
  };
  if (present(g.dup)) gather(g.out, g.rank, as_type(cuda, g.dy, type), narrow(g.s), g.scale, out(g.dup));
  if (present(g.ddown)) gather(g.rank, g.in, narrow(g.ds), as_type(cuda, g.x, type), 1.0f, out(g.ddown));
}

// Those that the tensor cores take as one call for each padded rank and pair of types; the others one by one.
void lora_gradients(Cuda& cuda, const lk_lora_gradients_params& p) {
  std::vector<std::vector<AdapterGradients>> at_once;
  void* workspace = nullptr;
  for (const lk_lora_gradients_layer& layer : std::span(p.layers, static_cast<size_t>(p.count))) {
    const AdapterGradients g = gradients_of(layer);
    if (g.rows <= gemv_rows) {
      gradients_of_few_rows(cuda, g);
      continue;
    }
    if (!skinny_pays(g.rows, g.in + g.out, g.rank) || !skinny_fits(cuda, g.x.dtype, g.rank) ||
        !skinny_fits(cuda, g.dy.dtype, g.rank)) {
      if (workspace == nullptr) workspace = cuda.gemm().workspace();
      gemm_gradients(cuda, g, workspace);
      continue;
    }
    const auto alike = [&](const std::vector<AdapterGradients>& others) {
      const AdapterGradients& first = others.front();
      return padded_rank(first.rank) == padded_rank(g.rank) && first.x.dtype == g.x.dtype &&
             first.dy.dtype == g.dy.dtype;
    };
    const auto found = std::find_if(at_once.begin(), at_once.end(), alike);
    if (found == at_once.end())
      at_once.push_back({g});
    else
      found->push_back(g);
  }
  for (const std::vector<AdapterGradients>& layers : at_once) skinny_gradients(cuda, layers);
}

}  // namespace lk::cuda
