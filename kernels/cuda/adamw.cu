// Adam with decoupled weight decay (Loshchilov & Hutter 2019), step t from 1:
//   p *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
// The per-step factors are computed in float64, once, by a thread of their own.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

struct Constants {
  float beta1, beta2, new1, new2, eps, weight_decay;
};

struct StepFactors {
  float keep, rate, root;
};

__global__ void factors_kernel(const float* lr, const float* step, Constants c, StepFactors* factors) {
  await_previous();
  const double rate = static_cast<double>(*lr), t = static_cast<double>(*step);
  factors->keep = static_cast<float>(1.0 - rate * static_cast<double>(c.weight_decay));
  factors->rate = static_cast<float>(rate / (1.0 - pow(static_cast<double>(c.beta1), t)));
  factors->root = static_cast<float>(1.0 / sqrt(1.0 - pow(static_cast<double>(c.beta2), t)));
}

__device__ inline void update(const Constants& c, const StepFactors& f, float g, float& p, float& m, float& v) {
  m = c.beta1 * m + c.new1 * g;
  v = c.beta2 * v + c.new2 * g * g;
  p = p * f.keep - f.rate * m / (sqrtf(v) * f.root + c.eps);
}

// The first 4 * fours elements lie at addresses that are multiples of 16 in all four arrays.
__global__ void adamw_kernel(float* p, const float* g, float* m, float* v, int64_t count, int64_t fours, Constants c,
                             const StepFactors* factors) {
  await_previous();
  const StepFactors f = *factors;
  for (int64_t i = thread_index(); i < fours; i += thread_count()) {
    float4 p4 = reinterpret_cast<float4*>(p)[i], m4 = reinterpret_cast<float4*>(m)[i];
    float4 v4 = reinterpret_cast<float4*>(v)[i];
    const float4 g4 = reinterpret_cast<const float4*>(g)[i];
    update(c, f, g4.x, p4.x, m4.x, v4.x);
    update(c, f, g4.y, p4.y, m4.y, v4.y);
    update(c, f, g4.z, p4.z, m4.z, v4.z);
    update(c, f, g4.w, p4.w, m4.w, v4.w);
    reinterpret_cast<float4*>(p)[i] = p4;
    reinterpret_cast<float4*>(m)[i] = m4;
    reinterpret_cast<float4*>(v)[i] = v4;
  }
  for (int64_t i = 4 * fours + thread_index(); i < count; i += thread_count()) update(c, f, g[i], p[i], m[i], v[i]);
}

}  // namespace

void adamw_update(Cuda& cuda, const lk_adamw_update_params& p) {
  const Constants c{p.beta1,
                    p.beta2,
                    static_cast<float>(1.0 - static_cast<double>(p.beta1)),
                    static_cast<float>(1.0 - static_cast<double>(p.beta2)),
                    p.eps,
                    p.weight_decay};
  StepFactors* const factors = cuda.scratch<StepFactors>(1);
  cuda.launch(factors_kernel, 1, 1, 0, static_cast<const float*>(p.lr.data), static_cast<const float*>(p.step.data), c,
              factors);
  const int64_t count = numel(p.p);
  const bool wide = aligned(p.p, 0) && aligned(p.g, 0) && aligned(p.m, 0) && aligned(p.v, 0);
  const int64_t fours = wide ? count / 4 : 0;
  cuda.launch(adamw_kernel, grid_for(cuda, wide ? ceil_div(count, 4) : count), block_threads, 0,
              static_cast<float*>(p.p.data), static_cast<const float*>(p.g.data), static_cast<float*>(p.m.data),
              static_cast<float*>(p.v.data), count, fours, c, factors);
}

}  // namespace lk::cuda
