// Convolution by cuDNN, which reads the groups from the channels of image and filter.
#include "cuda/convolution.h"
#include "cuda/dnn.h"
#include "cuda/dnn_graph.h"

namespace lk::cuda {

namespace {

enum Id : int64_t { x_id = 1, weight_id, y_id, bias_id };

constexpr int64_t most_workspace = int64_t{1} << 30;

// cuDNN's tensors begin at multiples of 16 bytes. While measuring, addresses mean nothing.
bool aligned_for_cudnn(const Cuda& cuda, std::initializer_list<const lk_tensor*> tensors) {
  if (cuda.measuring()) return true;
  for (const lk_tensor* t : tensors) {
    if (reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return false;
  }
  return true;
}

// A tensor [N, ..., C] in memory is one of dimensions N, C, ... to cuDNN.
DnnDims channels_second(const lk_tensor& t) {
  DnnDims dims{t.dims[0], t.dims[t.rank - 1]};
  dims.insert(dims.end(), t.dims + 1, t.dims + t.rank - 1);
  return dims;
}

DnnDims channels_last_strides(const DnnDims& dims) {
  DnnDims strides(dims.size());
  strides[1] = 1;
  int64_t step = dims[1];
  for (size_t i = dims.size() - 1; i > 1; --i) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
  return strides;
}

DnnTensor channels_last(DnnGraph& graph, int64_t id, const lk_tensor& t) {
  const DnnDims dims = channels_second(t);
  return graph.real(id, dnn_type(t.dtype), dims, channels_last_strides(dims));
}

// Of the axes that the tensors have: an image has no time.
ConvolutionWindow window_of(const ConvolutionShape& s, int32_t rank) {
  ConvolutionWindow window;
  for (const ConvolutionAxis* a : {&s.t, &s.h, &s.w}) {
    if (rank == 4 && a == &s.t) continue;
    window.pad_before.push_back(a->before);
    window.pad_after.push_back(a->after);
    window.strides.push_back(a->stride);
  }
  return window;
}

}  // namespace

bool convolution_by_cudnn(Cuda& cuda, Convolution kind, const ConvolutionTask& task) {
  const lk_tensor &x = task.x, &weight = task.weight, &y = task.y, &bias = task.bias;
  if (!aligned_for_cudnn(cuda, {&x, &weight, &y, &bias})) return false;
  const bool biased = present(bias);
  const DnnAccept accept{.plain_float = x.dtype == LK_F32 && weight.dtype == LK_F32 && y.dtype == LK_F32,
                         .nondeterministic = cuda.fast(),
                         .workspace = most_workspace};
  constexpr int64_t first_key = 100;  // apart from attention's
  const ConvolutionWindow window = window_of(task.s, x.rank);
  DnnKey key{first_key + static_cast<int64_t>(kind), x.dtype, weight.dtype, y.dtype, biased ? bias.dtype : -1, x.rank};
  for (const DnnDims* list : {&window.strides, &window.pad_before, &window.pad_after})
    key.insert(key.end(), list->begin(), list->end());
  for (const lk_tensor* t : {&x, &weight, &y}) key.insert(key.end(), t->dims, t->dims + t->rank);
  const auto describe = [&](DnnGraph& graph) {
    const DnnTensor image = channels_last(graph, x_id, x), filter = channels_last(graph, weight_id, weight);
    const DnnTensor result = channels_last(graph, y_id, y);
    if (!biased) {
      graph.convolution(kind, image, filter, result, window);
      return;
    }
    const DnnDims dims = channels_second(y);
    DnnDims one(dims.size(), 1);
    one[1] = dims[1];
    const DnnTensor sum = graph.inner(CUDNN_DATA_FLOAT, dims, channels_last_strides(dims));
    graph.convolution(kind, image, filter, sum, window);
    const DnnTensor offset = graph.real(bias_id, dnn_type(bias.dtype), one, channels_last_strides(one));
    graph.pointwise(CUDNN_POINTWISE_ADD, sum, offset, result);
  };
  const DnnPlan* const plan = cuda.dnn().plan(key, describe, accept);
  if (plan == nullptr) return false;
  void* const workspace = cuda.scratch<std::byte>(plan->workspace());
  cuda.dnn().run(*plan, {{x_id, x.data}, {weight_id, weight.data}, {y_id, y.data}, {bias_id, bias.data}}, workspace);
  return true;
}

}  // namespace lk::cuda
