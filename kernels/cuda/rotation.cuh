// What rope and rms_norm_rope share: a turned pair, and how angles are loaded.
#pragma once

namespace lk::cuda {

__device__ inline void rotate(float& a, float& b, float cos, float sin) {
  const float turned = a * cos - b * sin;
  b = a * sin + b * cos;
  a = turned;
}

// Each number by an angle of its own.
__device__ inline void rotate(float& a, float& b, float cos_a, float sin_a, float cos_b, float sin_b) {
  const float turned = a * cos_a - b * sin_a;
  b = a * sin_b + b * cos_b;
  a = turned;
}

// Aligned to 16 bytes.
template <int count>
__device__ inline void load_floats(const float* from, float (&v)[count], float factor = 1.0f) {
#pragma unroll
  for (int k = 0; k < count; k += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + k);
    v[k] = four.x * factor, v[k + 1] = four.y * factor, v[k + 2] = four.z * factor, v[k + 3] = four.w * factor;
  }
}

}  // namespace lk::cuda
