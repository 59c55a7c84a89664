// y = norm(x) * (1 + scale) + shift: layer norm with a weight and a bias per image, or RMS norm with a factor of its
// weight and a bias per image.
#include "cuda/column_sums.cuh"
#include "cuda/layer_norm.cuh"
#include "cuda/rms_rows.cuh"

namespace lk::cuda {

void modulated_norm(Cuda& cuda, const lk_modulated_norm_params& p) {
  if (p.rms != 0) {
    rms_rows(cuda, {p.x, p.weight, p.scale, 1.0f, p.x.dims[1], p.eps}, p.shift, false, p.y);
    return;
  }
  layer_norm_rows(cuda, {p.x, p.scale, p.shift, 1.0f, p.x.dims[1], p.eps}, p.y);
}

void modulated_norm_backward(Cuda& cuda, const lk_modulated_norm_backward_params& p) {
  if (p.rms != 0) {
    rms_rows_backward(cuda, {p.x, p.weight, p.scale, 1.0f, p.x.dims[1], p.eps}, p.dy, p.added, p.dx, p.dscale);
    if (present(p.dshift)) sum_columns(cuda, in(p.dy), {p.x.dims[0], p.x.dims[1], p.x.dims[2]}, out(p.dshift), 1.0f);
    return;
  }
  layer_norm_rows_backward(cuda, {p.x, p.scale, {}, 1.0f, p.x.dims[1], p.eps}, p.dy, p.added, p.dx, p.dscale, p.dshift);
}

}  // namespace lk::cuda
