// Graphs and plans through the backend API of cudnn_graph.h.
#include "cuda/dnn_graph.h"

#include <algorithm>
#include <array>
#include <optional>

namespace lk::cuda {

namespace {

using Descriptor = cudnnBackendDescriptor_t;
using Name = cudnnBackendAttributeName_t;

std::string failure_text(const std::string& call, cudnnStatus_t status) {
  char detail[1024] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  return call + ": " + cudnnGetErrorString(status) + (detail[0] != '\0' ? std::string(": ") + detail : "");
}

lk_status failure_status(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                 status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
             ? LK_E_MEMORY
             : LK_E_DEVICE;
}

void put(Descriptor d, Name name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(d, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DnnError("cudnnBackendSetAttribute " + std::to_string(static_cast<int>(name)), status);
  }
}
void put(Descriptor d, Name name, Descriptor value) { put(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value); }
void put(Descriptor d, Name name, cudnnDataType_t value) { put(d, name, CUDNN_TYPE_DATA_TYPE, 1, &value); }
void put(Descriptor d, Name name, const DnnDims& values) {
  put(d, name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}
void put_integer(Descriptor d, Name name, int64_t value) { put(d, name, CUDNN_TYPE_INT64, 1, &value); }
void put_flag(Descriptor d, Name name, bool value) { put(d, name, CUDNN_TYPE_BOOLEAN, 1, &value); }
void put_float(Descriptor d, Name name, float value) { put(d, name, CUDNN_TYPE_FLOAT, 1, &value); }

void finalize(Descriptor d, const char* what) {
  const cudnnStatus_t status = cudnnBackendFinalize(d);
  if (status != CUDNN_STATUS_SUCCESS) throw DnnError(std::string("cudnnBackendFinalize of ") + what, status);
}

// Reads up to `capacity` values; returns how many there are.
int64_t get(Descriptor d, Name name, cudnnBackendAttributeType_t type, int64_t capacity, void* values) {
  int64_t count = 0;
  const cudnnStatus_t status = cudnnBackendGetAttribute(d, name, type, capacity, &count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DnnError("cudnnBackendGetAttribute " + std::to_string(static_cast<int>(name)), status);
  }
  return count;
}

bool acceptable(Descriptor configuration, const DnnAccept& accept) {
  DnnDescriptors own;
  Descriptor engine = own.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
  std::array<cudnnBackendNumericalNote_t, 32> notes{};
  const int64_t count = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            static_cast<int64_t>(notes.size()), notes.data());
  return std::all_of(notes.begin(), notes.begin() + std::min<int64_t>(count, notes.size()), [&](auto note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return !accept.plain_float;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return accept.nondeterministic;
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP: return true;
      default: return false;
    }
  });
}

int64_t engine_number(Descriptor configuration) {
  DnnDescriptors own;
  Descriptor engine = own.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
  int64_t number = -1;
  get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
  return number;
}

}  // namespace

DnnError::DnnError(const std::string& call, cudnnStatus_t status)
    : Error(failure_status(status), failure_text(call, status)), code_(status) {}

// Missing libraries (cuDNN's own parts, NVRTC) are not a refusal: slower kernels would hide a broken installation.
bool DnnError::refused() const {
  if (code_ == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING) return false;
  if (code_ == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE) return false;
  const int category = CUDNN_STATUS_CATEGORY(static_cast<int>(code_));
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
}

void check(cudnnStatus_t status, const std::string& call) {
  if (status != CUDNN_STATUS_SUCCESS) throw DnnError(call, status);
}

DnnDims dense_strides(const DnnDims& dims) {
  DnnDims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

cudnnDataType_t dnn_type(lk_dtype dtype) {
  switch (dtype) {
    case LK_F16: return CUDNN_DATA_HALF;
    case LK_BF16: return CUDNN_DATA_BFLOAT16;
    case LK_I32: return CUDNN_DATA_INT32;
    default: return CUDNN_DATA_FLOAT;
  }
}

DnnDescriptors::~DnnDescriptors() {
  for (auto it = all_.rbegin(); it != all_.rend(); ++it) cudnnBackendDestroyDescriptor(*it);
}

Descriptor DnnDescriptors::make(cudnnBackendDescriptorType_t type) {
  Descriptor d = nullptr;
  check(cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor " + std::to_string(type));
  all_.push_back(d);
  return d;
}

DnnTensor DnnGraph::tensor(int64_t id, cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides, bool is_inner,
                           bool by_value) {
  Descriptor d = own_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  put(d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  put(d, CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  put(d, CUDNN_ATTR_TENSOR_STRIDES, strides);
  put_integer(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  put_integer(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, by_value ? 4 : 16);
  put_flag(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_inner);
  put_flag(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  finalize(d, "a tensor");
  return d;
}

DnnTensor DnnGraph::real(int64_t id, cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides) {
  bound_.push_back(id);
  return tensor(id, type, dims, strides, false, false);
}

DnnTensor DnnGraph::inner(cudnnDataType_t type, const DnnDims& dims, const DnnDims& strides) {
  return tensor(next_inner_++, type, dims, strides, true, false);
}

DnnTensor DnnGraph::scalar(int64_t id) {
  bound_.push_back(id);
  return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

bool DnnGraph::binds(int64_t id) const { return std::find(bound_.begin(), bound_.end(), id) != bound_.end(); }

Descriptor DnnGraph::operation(cudnnBackendDescriptorType_t type) {
  operations_.push_back(own_.make(type));
  return operations_.back();
}

Descriptor DnnGraph::pointwise_mode(cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis) {
  Descriptor d = own_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  put(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  put(d, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  if (axis >= 0) put_integer(d, CUDNN_ATTR_POINTWISE_AXIS, axis);
  finalize(d, "a pointwise mode");
  return d;
}

void DnnGraph::pointwise(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y, cudnnDataType_t compute) {
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_mode(mode, compute));
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) put(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  finalize(op, "a pointwise operation");
}

void DnnGraph::index(DnnTensor like, int64_t axis, DnnTensor y) {
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
      pointwise_mode(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis));
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  finalize(op, "an index");
}

void DnnGraph::select(DnnTensor condition, DnnTensor x, DnnTensor otherwise, DnnTensor y) {
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
      pointwise_mode(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT));
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, otherwise);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition);
  put(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  finalize(op, "a selection");
}

void DnnGraph::matmul(DnnTensor a, DnnTensor b, DnnTensor c, DnnTensor m, DnnTensor n, DnnTensor k) {
  Descriptor precision = own_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  put(precision, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finalize(precision, "a matrix product's type");
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, precision);
  put(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  put(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  put(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  if (m != nullptr) put(op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
  if (n != nullptr) put(op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
  if (k != nullptr) put(op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
  finalize(op, "a matrix product");
}

void DnnGraph::reduce(cudnnReduceTensorOp_t kind, DnnTensor x, DnnTensor y) {
  Descriptor reduction = own_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  put(reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
  put(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  finalize(reduction, "a reduction's kind");
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  put(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  put(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  finalize(op, "a reduction");
}

void DnnGraph::reshape(DnnTensor x, DnnTensor y) {
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  put(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  finalize(op, "a reshape");
}

void DnnGraph::sdpa(const SdpaForward& p) {
  Descriptor op = operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, p.q);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, p.k);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, p.v);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, p.o);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, p.stats);
  put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, p.scale);
  if (p.key_lengths != nullptr) {
    put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, p.query_lengths);
    put(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, p.key_lengths);
  }
  finalize(op, "an attention operation");
}

void DnnGraph::convolution(Convolution kind, DnnTensor x, DnnTensor w, DnnTensor y, const ConvolutionWindow& window) {
  Descriptor c = own_.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  put_integer(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(window.strides.size()));
  put(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  put(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  put(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window.pad_before);
  put(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window.pad_after);
  put(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, DnnDims(window.strides.size(), 1));
  put(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window.strides);
  finalize(c, "a convolution's window");
  struct Names {
    cudnnBackendDescriptorType_t operation;
    Name x, w, y, window, alpha, beta;
  };
  const Names forward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  const Names data{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  const Names weight{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  const Names& names = kind == Convolution::forward ? forward : kind == Convolution::data_gradient ? data : weight;
  Descriptor op = operation(names.operation);
  put(op, names.x, x);
  put(op, names.w, w);
  put(op, names.y, y);
  put(op, names.window, c);
  put_float(op, names.alpha, 1.0f);
  put_float(op, names.beta, 0.0f);
  finalize(op, "a convolution");
}

Descriptor DnnGraph::finish(cudnnHandle_t handle) {
  Descriptor graph = own_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  put(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations_.size()),
      operations_.data());
  put(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  finalize(graph, "an operation graph");
  return graph;
}

std::unique_ptr<DnnPlan> DnnPlan::find(std::unique_ptr<DnnGraph> graph, cudnnHandle_t handle, const DnnAccept& accept) {
  std::optional<DnnError> failure;  // the first that is not a refusal
  const auto attempt = [&](auto&& body) {
    try {
      body();
    } catch (const DnnError& error) {
      if (!error.refused() && !failure) failure = error;
    }
  };
  std::unique_ptr<DnnPlan> found;
  attempt([&] {
    const Descriptor operations = graph->finish(handle);
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
      attempt([&] {
        DnnDescriptors own;
        Descriptor heuristics = own.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        put(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
        put(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
        finalize(heuristics, "heuristics");
        std::vector<Descriptor> configurations(
            get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
        if (configurations.empty()) return;
        for (Descriptor& c : configurations) c = own.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        const int64_t count = get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  static_cast<int64_t>(configurations.size()), configurations.data());
        configurations.resize(std::min<size_t>(configurations.size(), count));
        for (const Descriptor configuration : configurations) {
          attempt([&] {
            if (found != nullptr || !acceptable(configuration, accept)) return;
            auto plan = std::make_unique<DnnPlan>();
            plan->plan_ = plan->own_.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
            put(plan->plan_, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
            finalize(plan->plan_, "an execution plan");
            get(plan->plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &plan->workspace_);
            plan->engine_ = engine_number(configuration);
            if (plan->workspace_ <= accept.workspace) found = std::move(plan);
          });
        }
      });
      if (found != nullptr) break;
    }
  });
  if (found != nullptr) {
    found->graph_ = std::move(graph);
  } else if (failure) {
    throw DnnError(*failure);
  }
  return found;
}

void DnnPlan::execute(cudnnHandle_t handle, const std::vector<DnnBinding>& bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const DnnBinding& binding : bindings) {
    if (!graph_->binds(binding.id)) continue;
    ids.push_back(binding.id);
    pointers.push_back(binding.data);
  }
  DnnDescriptors own;
  Descriptor pack = own.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  put(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(pointers.size()),
      pointers.data());
  put(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  put(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finalize(pack, "the addresses");
  check(cudnnBackendExecute(handle, plan_, pack), "cudnnBackendExecute");
}

}  // namespace lk::cuda
