// Convolution in two and three dimensions: a window of one tap and stride 1 is a matrix product, cuDNN does what it has
// an engine for (convolution_dnn.cpp), own kernels (convolution_kernels.cu) the rest.
#include "cuda/convolution.h"

#include "check.h"
#include "cuda/dnn.h"
#include "cuda/dnn_graph.h"
#include "cuda/gemm.h"

namespace lk::cuda {

namespace {

// Two operands of one type give that type or float32.
bool plain_types(const lk_tensor& a, const lk_tensor& b, const lk_tensor& result) {
  return a.dtype == b.dtype && (result.dtype == a.dtype || result.dtype == LK_F32);
}

// Copies the taps of time that ever meet a frame, from the weight to the part or back.
void copy_taps(Cuda& cuda, const LiveTaps& live, const lk_tensor& from, const lk_tensor& to, bool back) {
  lk_copy_block_params p{.x = from, .y = to, .extent = {}, .x_offset = {}, .y_offset = {}};
  const lk_tensor& part = back ? from : to;
  std::copy(part.dims, part.dims + part.rank, p.extent);
  (back ? p.y_offset : p.x_offset)[1] = live.first;
  copy_block(cuda, p);
}

// A weight of these taps alone, in scratch memory.
lk_tensor part_of(Cuda& cuda, const LiveTaps& live, lk_tensor weight) {
  weight.dims[1] = live.count;
  weight.data = cuda.scratch<std::byte>(bytes_of(weight));
  return weight;
}

// Whether some taps of time meet padding only; `task` then becomes one of a part of the weight, not yet filled.
bool cut(Cuda& cuda, ConvolutionTask& task, LiveTaps& live) {
  live = live_taps(task.s.t);
  if (live.count == task.s.t.kernel) return false;
  task.s.t = with_taps(task.s.t, live);
  task.weight = part_of(cuda, live, task.weight);
  return true;
}

// Without a window in time every frame is an image, for which there are more and faster engines.
void flatten(ConvolutionTask& task) {
  if (task.x.rank == 4 || !task.s.t.pointwise()) return;
  task.s.n *= task.s.t.in;
  task.s.t = {1, 1, 1, 1, 0, 0};
  for (lk_tensor* t : {&task.x, &task.weight, &task.y}) {
    t->dims[0] *= t->dims[1];
    std::copy(t->dims + 2, t->dims + t->rank, t->dims + 1);
    --t->rank;
  }
}

void forward(Cuda& cuda, ConvolutionTask task) {
  LiveTaps live{};
  const lk_tensor whole = task.weight;
  if (cut(cuda, task, live)) copy_taps(cuda, live, whole, task.weight, false);
  flatten(task);
  const ConvolutionShape& s = task.s;
  if (plain_types(task.x, task.weight, task.y)) {
    if (s.pointwise() && s.groups == 1) {
      cuda.gemm().run({.m = s.outputs(),
                       .n = s.o,
                       .k = s.c,
                       .a = task.x.data,
                       .b = task.weight.data,
                       .d = task.y.data,
                       .a_dtype = task.x.dtype,
                       .b_dtype = task.weight.dtype,
                       .d_dtype = task.y.dtype,
                       .transpose_b = true,
                       .bias = task.bias.data,
                       .bias_dtype = task.bias.dtype});
      return;
    }
    if (convolution_by_cudnn(cuda, Convolution::forward, task)) return;
    ConvolutionTask unbiased = task;
    unbiased.bias = {};
    if (present(task.bias) && task.y.dtype == LK_F32 && convolution_by_cudnn(cuda, Convolution::forward, unbiased)) {
      binary(cuda, {.kind = LK_ADD, .a = task.y, .b = task.bias, .y = task.y});
      return;
    }
  }
  convolution_by_kernels(cuda, s, task.x, task.weight, task.bias, task.y);
}

void data_gradient(Cuda& cuda, ConvolutionTask task) {
  LiveTaps live{};
  const lk_tensor whole = task.weight;
  if (cut(cuda, task, live)) copy_taps(cuda, live, whole, task.weight, false);
  flatten(task);
  const ConvolutionShape& s = task.s;
  if (plain_types(task.y, task.weight, task.x)) {
    if (s.pointwise() && s.groups == 1) {
      cuda.gemm().run({.m = s.inputs(),
                       .n = s.c,
                       .k = s.o,
                       .a = task.y.data,
                       .b = task.weight.data,
                       .d = task.x.data,
                       .a_dtype = task.y.dtype,
                       .b_dtype = task.weight.dtype,
                       .d_dtype = task.x.dtype});
      return;
    }
    if (convolution_by_cudnn(cuda, Convolution::data_gradient, task)) return;
  }
  data_gradient_by_kernels(cuda, s, task.y, task.weight, task.x);
}

void whole_weight_gradient(Cuda& cuda, const ConvolutionTask& task) {
  const ConvolutionShape& s = task.s;
  if (plain_types(task.y, task.x, task.weight)) {
    if (s.pointwise() && s.groups == 1) {
      cuda.gemm().run({.m = s.o,
                       .n = s.c,
                       .k = s.outputs(),
                       .a = task.y.data,
                       .b = task.x.data,
                       .d = task.weight.data,
                       .a_dtype = task.y.dtype,
                       .b_dtype = task.x.dtype,
                       .d_dtype = task.weight.dtype,
                       .transpose_a = true});
      return;
    }
    if (convolution_by_cudnn(cuda, Convolution::weight_gradient, task)) return;
  }
  weight_gradient_by_kernels(cuda, s, task.y, task.x, task.weight);
}

void weight_gradient(Cuda& cuda, ConvolutionTask task) {
  LiveTaps live{};
  const lk_tensor whole = task.weight;
  const bool partial = cut(cuda, task, live);
  const lk_tensor part = task.weight;
  flatten(task);
  whole_weight_gradient(cuda, task);
  if (!partial) return;
  cuda.fill_zero(whole.data, bytes_of(whole));
  copy_taps(cuda, live, part, whole, true);
}

void bias_gradient(Cuda& cuda, const lk_tensor& dy, const lk_tensor& dbias) {
  const int64_t channels = dy.dims[dy.rank - 1];
  reduce_sum(cuda, {.x = {dy.data, dy.dtype, 2, {numel(dy) / channels, channels}},
                    .y = {dbias.data, dbias.dtype, 2, {1, channels}},
                    .scale = 1.0f});
}

template <class Params>
std::string forward_name(const char* op, const Params& p) {
  return std::string(op) + " of x " + shape_text(shape_of(p.x)) + ", weight " + shape_text(shape_of(p.weight)) +
         " in " + lk_dtype_name(p.x.dtype);
}

template <class Params>
std::string backward_name(const char* op, const Params& p) {
  std::string text = std::string(op) + " of dy " + shape_text(shape_of(p.dy));
  if (present(p.dx)) text += ", dx " + shape_text(shape_of(p.dx));
  if (present(p.dweight)) text += ", dweight " + shape_text(shape_of(p.dweight));
  return text + " in " + lk_dtype_name(p.dy.dtype);
}

template <class Params>
void backward(Cuda& cuda, const char* op, const Params& p,
              ConvolutionShape (*shape)(const Params&, const lk_tensor&, const lk_tensor&, const lk_tensor&)) {
  named_failures([&] { return backward_name(op, p); },
                 [&] {
                   if (present(p.dx)) {
                     data_gradient(cuda, {shape(p, p.dx, p.weight, p.dy), p.dx, p.weight, p.dy, {}});
                   }
                   if (present(p.dweight)) {
                     weight_gradient(cuda, {shape(p, p.x, p.dweight, p.dy), p.x, p.dweight, p.dy, {}});
                   }
                   if (present(p.dbias)) bias_gradient(cuda, p.dy, p.dbias);
                 });
}

}  // namespace

void conv2d(Cuda& cuda, const lk_conv2d_params& p) {
  named_failures([&] { return forward_name("conv2d", p); },
                 [&] {
                   forward(cuda, {planar_shape(p, p.x, p.weight, p.y), p.x, p.weight, p.y, p.bias});
                 });
}

void conv3d(Cuda& cuda, const lk_conv3d_params& p) {
  named_failures([&] { return forward_name("conv3d", p); },
                 [&] {
                   forward(cuda, {spatial_shape(p, p.x, p.weight, p.y), p.x, p.weight, p.y, p.bias});
                 });
}

void conv2d_backward(Cuda& cuda, const lk_conv2d_backward_params& p) {
  backward(cuda, "conv2d_backward", p, planar_shape<lk_conv2d_backward_params>);
}

void conv3d_backward(Cuda& cuda, const lk_conv3d_backward_params& p) {
  backward(cuda, "conv3d_backward", p, spatial_shape<lk_conv3d_backward_params>);
}

}  // namespace lk::cuda
