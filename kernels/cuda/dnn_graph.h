// cuDNN's backend descriptors: a graph of operations, and a plan that executes it.
//
// A tensor is real (its address is bound by a unique id when the plan runs), inner (exists only inside the plan) or a
// float32 scalar that is read from host memory when the plan is enqueued. A graph that cuDNN refuses throws DnnError.
#pragma once

#include <cudnn_graph.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"

namespace lk::cuda {

class DnnError : public Error {
 public:
  DnnError(const std::string& call, cudnnStatus_t status);  // with cuDNN's own text
  // cuDNN does not do this, or not on this device; otherwise something is wrong with the machine.
  bool refused() const;

 private:
  cudnnStatus_t code_;
};

void check(cudnnStatus_t status, const std::string& call);

using DnnTensor = cudnnBackendDescriptor_t;
using DnnDims = std::vector<int64_t>;

DnnDims dense_strides(const DnnDims& dims);
cudnnDataType_t dnn_type(lk_dtype dtype);  // of f32, f16, bf16 and i32

// Owns descriptors; the newest is destroyed first.
class DnnDescriptors {
 public:
  DnnDescriptors() = default;
  ~DnnDescriptors();
  DnnDescriptors(const DnnDescriptors&) = delete;
  DnnDescriptors& operator=(const DnnDescriptors&) = delete;
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);

 private:
  std::vector<cudnnBackendDescriptor_t> all_;
};

enum class Convolution { forward, data_gradient, weight_gradient };

struct ConvolutionWindow {
  DnnDims pad_before, pad_after, strides;  // height, width
};

struct SdpaForward {
  DnnTensor q, k, v, scale, o, stats;
  DnnTensor query_lengths = nullptr, key_lengths = nullptr;  // both or none
};

class DnnGraph {
 public:
  DnnTensor real(int64_t id, cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides);
  DnnTensor inner(cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides);
  DnnTensor inner(cudnnDataType_t type, const DnnDims& dims) { return inner(type, dims, dense_strides(dims)); }
  DnnTensor scalar(int64_t id);

  // y = mode(x, b); b is absent for modes of one operand, `compute` is float unless given.
  void pointwise(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void index(DnnTensor like, int64_t axis, DnnTensor y);  // y = position along the axis, int32
  void select(DnnTensor condition, DnnTensor x, DnnTensor otherwise, DnnTensor y);
  // c = a b. Lengths bound m, n and k for each batch item.
  void matmul(DnnTensor a, DnnTensor b, DnnTensor c, DnnTensor m = nullptr, DnnTensor n = nullptr,
              DnnTensor k = nullptr);
  void reduce(cudnnReduceTensorOp_t kind, DnnTensor x, DnnTensor y);
  void reshape(DnnTensor x, DnnTensor y);
  void sdpa(const SdpaForward& p);
  // x, w and y are the image, the filter and the result, or their gradients: the kind says which of them is written.
  void convolution(Convolution kind, DnnTensor x, DnnTensor w, DnnTensor y, const ConvolutionWindow& window);

  cudnnBackendDescriptor_t finish(cudnnHandle_t handle);  // the operation graph
  bool binds(int64_t id) const;                           // whether it has a tensor of this id that is not inner

 private:
  DnnTensor tensor(int64_t id, cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides, bool is_inner,
                   bool by_value);
  cudnnBackendDescriptor_t operation(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t pointwise_mode(cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis = -1);

  DnnDescriptors own_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<int64_t> bound_;
  int64_t next_inner_ = 1000;  // unique ids: above those of real tensors
};

// Which engines will do. None may round inputs or sums below float32, nor use FFT or Winograd, which lose digits.
struct DnnAccept {
  bool plain_float = false;      // no tensor cores either: they would round float32 to TF32
  bool nondeterministic = true;  // sums in changing order
  int64_t workspace = std::numeric_limits<int64_t>::max();
};

struct DnnBinding {
  int64_t id;
  const void* data;  // device memory; host memory for a scalar
};

class DnnPlan {
 public:
  // The first that finalizes of the configurations that cuDNN's heuristics propose; nullptr if none does.
  static std::unique_ptr<DnnPlan> find(std::unique_ptr<DnnGraph> graph, cudnnHandle_t handle, const DnnAccept& accept);

  int64_t workspace() const { return workspace_; }
  int64_t engine() const { return engine_; }  // cuDNN's number of it
  // Bindings of ids that the graph lacks are left out.
  void execute(cudnnHandle_t handle, const std::vector<DnnBinding>& bindings, void* workspace) const;

 private:
  std::unique_ptr<DnnGraph> graph_;  // a plan refers to its graph
  DnnDescriptors own_;
  cudnnBackendDescriptor_t plan_ = nullptr;
  int64_t workspace_ = 0, engine_ = -1;
};

}  // namespace lk::cuda
