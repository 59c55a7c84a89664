// y = layer_norm(x) * (1 + scale) + shift: layer norm with a weight and a bias per image.
#include "cuda/layer_norm.cuh"

namespace lk::cuda {

void modulated_norm(Cuda& cuda, const lk_modulated_norm_params& p) {
  layer_norm_rows(cuda, {p.x, p.scale, p.shift, 1.0f, p.x.dims[1], p.eps}, p.y);
}

void modulated_norm_backward(Cuda& cuda, const lk_modulated_norm_backward_params& p) {
  layer_norm_rows_backward(cuda, {p.x, p.scale, {}, 1.0f, p.x.dims[1], p.eps}, p.dy, p.dx, p.dscale, p.dshift);
}

}  // namespace lk::cuda
