// Elementwise passes over tensors of one 16-bit type in which every chunk of eight lies whole and aligned. A thread has
// its few chunks on their way before it waits for the first, and the type is known when this is compiled: where there
// is something to compute, a loop with a grid stride (elements.cuh) takes a fifth to a quarter longer than memory does.
#pragma once

#include "cuda/await_previous.cuh"
#include "cuda/line_places.cuh"

namespace lk::cuda {

template <int ins, int outs>
struct WideTensors {
  const uint16_t* in[ins];
  uint16_t* out[outs];
  LinePlaces in_lines[ins], out_lines[outs];
  int chunks;  // of a row
};

// Block (x, y) does the x-th piece of row y. body(in [ins][8], out [outs][8]) computes a chunk.
template <lk_dtype Type, int ins, int outs, class Body>
__global__ void __launch_bounds__(block_threads) wide_chunks_kernel(WideTensors<ins, outs> p, Body body) {
  await_previous();
  constexpr int batch = 4 / ins;  // chunks of a thread: 16 registers
  const int first = static_cast<int>(blockIdx.x) * batch * block_threads + static_cast<int>(threadIdx.x);
  uint4 held[batch][ins];
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    const int chunk = first + u * block_threads;
    if (chunk >= p.chunks) continue;
#pragma unroll
    for (int t = 0; t < ins; ++t)
      held[u][t] = reinterpret_cast<const uint4*>(p.in[t] + p.in_lines[t].row(blockIdx.y))[chunk];
  }
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    const int chunk = first + u * block_threads;
    if (chunk >= p.chunks) break;
    float in[ins][vector_width], out[outs][vector_width];
#pragma unroll
    for (int t = 0; t < ins; ++t) unpack16(held[u][t], Type, in[t]);
    body(in, out);
#pragma unroll
    for (int t = 0; t < outs; ++t)
      store8({p.out[t], Type}, p.out_lines[t].row(blockIdx.y) + int64_t{chunk} * vector_width, out[t]);
  }
}

// Launches the pass for which body_of(type) gives the body, type being a constant, or returns false where tensors do
// not lie so. All have one shape.
template <int ins, int outs, class BodyOf>
bool pass_wide_chunks(Cuda& cuda, const lk_tensor (&in)[ins], const lk_tensor (&out)[outs], const BodyOf& body_of) {
  static_assert(ins + outs <= 5);
  constexpr int64_t piece = block_threads * (4 / ins), most_rows = 65535, most_chunks = int64_t{1} << 30;
  lk_tensor all[5] = {};
  std::copy_n(in, ins, all);
  std::copy_n(out, outs, all + ins);
  const lk_dtype type = in[0].dtype;
  const int64_t count = numel(in[0]), line = common_line({&all[0], &all[1], &all[2], &all[3], &all[4]});
  const int64_t width = line == 0 ? count : line, rows = line == 0 ? 1 : count / line, chunks = width / vector_width;
  bool fits = type != LK_F32 && rows <= most_rows && chunks <= most_chunks && (rows == 1 || chunks >= block_threads);
  for (int t = 0; t < ins + outs; ++t) fits = fits && present(all[t]) && all[t].dtype == type && aligned(all[t], width);
  if (!fits) return false;
  WideTensors<ins, outs> p{};
  for (int t = 0; t < ins; ++t) {
    p.in[t] = static_cast<const uint16_t*>(in[t].data);
    p.in_lines[t] = line_places(in[t], width);
  }
  for (int t = 0; t < outs; ++t) {
    p.out[t] = static_cast<uint16_t*>(out[t].data);
    p.out_lines[t] = line_places(out[t], width);
  }
  p.chunks = static_cast<int>(chunks);
  const auto launch = [&](auto constant) {
    const auto body = body_of(constant);
    cuda.launch(wide_chunks_kernel<constant(), ins, outs, std::remove_const_t<decltype(body)>>,
                dim3(static_cast<unsigned>(ceil_div(chunks, piece)), static_cast<unsigned>(rows)), block_threads, 0, p,
                body);
  };
  if (type == LK_BF16) {
    launch(std::integral_constant<lk_dtype, LK_BF16>());
  } else {
    launch(std::integral_constant<lk_dtype, LK_F16>());
  }
  return true;
}

}  // namespace lk::cuda
