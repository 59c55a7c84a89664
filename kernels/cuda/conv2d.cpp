// Convolution: a 1x1 window of stride 1 is a matrix product, cuDNN does what it has an engine for, own kernels
// (conv2d_kernels.cu) the rest.
#include "cuda/conv2d.h"

#include "check.h"
#include "cuda/dnn.h"
#include "cuda/dnn_graph.h"
#include "cuda/gemm.h"

namespace lk::cuda {

namespace {

enum Id : int64_t { x_id = 1, weight_id, y_id, bias_id };

constexpr int64_t most_workspace = int64_t{1} << 30;

template <class Params>
ConvolutionShape shape(const Params& p, const lk_tensor& x, const lk_tensor& weight, const lk_tensor& y) {
  return {x.dims[0],      x.dims[1], x.dims[2], x.dims[3], weight.dims[0], weight.dims[1],
          weight.dims[2], y.dims[1], y.dims[2], p.stride,  p.pad_top,      p.pad_left};
}

// Two operands of one type give that type or float32.
bool plain_types(const lk_tensor& a, const lk_tensor& b, const lk_tensor& result) {
  return a.dtype == b.dtype && (result.dtype == a.dtype || result.dtype == LK_F32);
}

// cuDNN's tensors begin at multiples of 16 bytes. While measuring, addresses mean nothing.
bool aligned_for_cudnn(const Cuda& cuda, std::initializer_list<const lk_tensor*> tensors) {
  if (cuda.measuring()) return true;
  for (const lk_tensor* t : tensors) {
    if (reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return false;
  }
  return true;
}

// A tensor [a, b, c, d] in memory is one of dimensions a, d, b, c to cuDNN.
DnnTensor channels_last(DnnGraph& graph, int64_t id, const lk_tensor& t) {
  const int64_t b = t.dims[1], c = t.dims[2], d = t.dims[3];
  return graph.real(id, dnn_type(t.dtype), {t.dims[0], d, b, c}, {b * c * d, 1, c * d, d});
}

// The result, one of the three, is computed from the other two (and the bias, for the forward pass).
template <class Params>
bool run_cudnn(Cuda& cuda, Convolution kind, const Params& p, const lk_tensor& x, const lk_tensor& weight,
               const lk_tensor& y, const lk_tensor& bias) {
  if (!aligned_for_cudnn(cuda, {&x, &weight, &y, &bias})) return false;
  const bool biased = present(bias);
  const DnnAccept accept{.plain_float = x.dtype == LK_F32 && weight.dtype == LK_F32 && y.dtype == LK_F32,
                         .nondeterministic = cuda.fast(),
                         .workspace = most_workspace};
  constexpr int64_t first_key = 100;  // apart from attention's
  DnnKey key{first_key + static_cast<int64_t>(kind),
             x.dtype,
             weight.dtype,
             y.dtype,
             biased ? bias.dtype : -1,
             p.stride,
             p.pad_top,
             p.pad_left,
             p.pad_bottom,
             p.pad_right};
  for (const lk_tensor* t : {&x, &weight, &y}) key.insert(key.end(), t->dims, t->dims + 4);
  const auto describe = [&](DnnGraph& graph) {
    const ConvolutionWindow window{{p.pad_top, p.pad_left}, {p.pad_bottom, p.pad_right}, {p.stride, p.stride}};
    const DnnTensor image = channels_last(graph, x_id, x), filter = channels_last(graph, weight_id, weight);
    const DnnTensor result = channels_last(graph, y_id, y);
    if (!biased) {
      graph.convolution(kind, image, filter, result, window);
      return;
    }
    const int64_t h = y.dims[1], w = y.dims[2], o = y.dims[3];
    const DnnTensor sum = graph.inner(CUDNN_DATA_FLOAT, {y.dims[0], o, h, w}, {h * w * o, 1, w * o, o});
    graph.convolution(kind, image, filter, sum, window);
    graph.pointwise(CUDNN_POINTWISE_ADD, sum, graph.real(bias_id, dnn_type(bias.dtype), {1, o, 1, 1}, {o, 1, o, o}),
                    result);
  };
  const DnnPlan* const plan = cuda.dnn().plan(key, describe, accept);
  if (plan == nullptr) return false;
  void* const workspace = cuda.scratch<std::byte>(plan->workspace());
  cuda.dnn().run(*plan, {{x_id, x.data}, {weight_id, weight.data}, {y_id, y.data}, {bias_id, bias.data}}, workspace);
  return true;
}

void forward(Cuda& cuda, const lk_conv2d_params& p) {
  const ConvolutionShape s = shape(p, p.x, p.weight, p.y);
  if (plain_types(p.x, p.weight, p.y)) {
    if (s.pointwise()) {
      cuda.gemm().run({.m = s.outputs(),
                       .n = s.o,
                       .k = s.c,
                       .a = p.x.data,
                       .b = p.weight.data,
                       .d = p.y.data,
                       .a_dtype = p.x.dtype,
                       .b_dtype = p.weight.dtype,
                       .d_dtype = p.y.dtype,
                       .transpose_b = true,
                       .bias = p.bias.data,
                       .bias_dtype = p.bias.dtype});
      return;
    }
    if (run_cudnn(cuda, Convolution::forward, p, p.x, p.weight, p.y, p.bias)) return;
    if (present(p.bias) && p.y.dtype == LK_F32 &&
        run_cudnn(cuda, Convolution::forward, p, p.x, p.weight, p.y, lk_tensor{})) {
      binary(cuda, {.kind = LK_ADD, .a = p.y, .b = p.bias, .y = p.y});
      return;
    }
  }
  convolution_by_kernels(cuda, s, p.x, p.weight, p.bias, p.y);
}

void data_gradient(Cuda& cuda, const lk_conv2d_backward_params& p) {
  const ConvolutionShape s = shape(p, p.dx, p.weight, p.dy);
  if (plain_types(p.dy, p.weight, p.dx)) {
    if (s.pointwise()) {
      cuda.gemm().run({.m = s.inputs(),
                       .n = s.c,
                       .k = s.o,
                       .a = p.dy.data,
                       .b = p.weight.data,
                       .d = p.dx.data,
                       .a_dtype = p.dy.dtype,
                       .b_dtype = p.weight.dtype,
                       .d_dtype = p.dx.dtype});
      return;
    }
    if (run_cudnn(cuda, Convolution::data_gradient, p, p.dx, p.weight, p.dy, lk_tensor{})) return;
  }
  data_gradient_by_kernels(cuda, s, p.dy, p.weight, p.dx);
}

void weight_gradient(Cuda& cuda, const lk_conv2d_backward_params& p) {
  const ConvolutionShape s = shape(p, p.x, p.dweight, p.dy);
  if (plain_types(p.dy, p.x, p.dweight)) {
    if (s.pointwise()) {
      cuda.gemm().run({.m = s.o,
                       .n = s.c,
                       .k = s.outputs(),
                       .a = p.dy.data,
                       .b = p.x.data,
                       .d = p.dweight.data,
                       .a_dtype = p.dy.dtype,
                       .b_dtype = p.x.dtype,
                       .d_dtype = p.dweight.dtype,
                       .transpose_a = true});
      return;
    }
    if (run_cudnn(cuda, Convolution::weight_gradient, p, p.x, p.dweight, p.dy, lk_tensor{})) return;
  }
  weight_gradient_by_kernels(cuda, s, p.dy, p.x, p.dweight);
}

void bias_gradient(Cuda& cuda, const lk_conv2d_backward_params& p) {
  const int64_t channels = p.dy.dims[3];
  reduce_sum(cuda, {.x = {p.dy.data, p.dy.dtype, 2, {numel(p.dy) / channels, channels}},
                    .y = {p.dbias.data, p.dbias.dtype, 2, {1, channels}},
                    .scale = 1.0f});
}

std::string name(const lk_conv2d_params& p) {
  return "conv2d of x " + shape_text(shape_of(p.x)) + ", weight " + shape_text(shape_of(p.weight)) + " in " +
         lk_dtype_name(p.x.dtype);
}

std::string name(const lk_conv2d_backward_params& p) {
  std::string text = "conv2d_backward of dy " + shape_text(shape_of(p.dy));
  if (present(p.dx)) text += ", dx " + shape_text(shape_of(p.dx));
  if (present(p.dweight)) text += ", dweight " + shape_text(shape_of(p.dweight));
  return text + " in " + lk_dtype_name(p.dy.dtype);
}

}  // namespace

void conv2d(Cuda& cuda, const lk_conv2d_params& p) {
  named_failures([&] { return name(p); }, [&] { forward(cuda, p); });
}

void conv2d_backward(Cuda& cuda, const lk_conv2d_backward_params& p) {
  named_failures([&] { return name(p); },
                 [&] {
                   if (present(p.dx)) data_gradient(cuda, p);
                   if (present(p.dweight)) weight_gradient(cuda, p);
                   if (present(p.dbias)) bias_gradient(cuda, p);
                 });
}

}  // namespace lk::cuda
