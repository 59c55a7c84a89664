#include "cuda/convert.h"
#include "cuda/lora_ways.h"

namespace lk::cuda {

namespace {

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

}  // namespace

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
      job.narrow = bases[i].v, job.again = bases[i].again;
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

void skinny_narrow(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const std::vector<Ds>& ds,
                   const std::vector<SharedProduct>& bases) {
  std::vector<Through> jobs;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (ds[i].to.data == nullptr) continue;
    jobs.push_back(through_dy(cuda, layers[i], ds[i]));
    if (!bases.empty()) jobs.back().narrow = bases[i].v, jobs.back().again = bases[i].again;
  }
  if (!jobs.empty()) skinny_through(cuda, jobs);
}

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

}  // namespace lk::cuda
