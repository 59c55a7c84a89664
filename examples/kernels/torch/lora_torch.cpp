// liblora_kernels for PyTorch: a LoRA layer and attention with their backward passes, on PyTorch's tensors and in its
// current stream. lora_torch.py makes autograd functions of them.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <lora_kernels.h>
#include <lora_kernels_stream.h>
#include <torch/extension.h>

#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace {

using torch::Tensor;

// One context for each device, made at first use and kept: it has the libraries' handles and the workspace.
lk_context* context_of(const Tensor& tensor) {
  static std::mutex guard;
  static std::map<int, lk_context*> contexts;
  const std::lock_guard<std::mutex> locked(guard);
  lk_context*& context = contexts[tensor.get_device()];
  if (context == nullptr) {
    lk_context_params params{};
    params.backend = LK_CUDA;
    params.device = tensor.get_device();
    TORCH_CHECK(lk_context_create(&params, &context) == LK_OK, lk_last_error(nullptr));
  }
  return context;
}

lk_dtype dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return LK_F32;
    case torch::kFloat16:
      return LK_F16;
    case torch::kBFloat16:
      return LK_BF16;
    default:
      TORCH_CHECK(false, "lora_torch: expected float32, float16 or bfloat16, found ", tensor.scalar_type());
  }
}

lk_tensor view(const std::optional<Tensor>& tensor) {
  lk_tensor view{};
  if (!tensor) return view;
  TORCH_CHECK(tensor->is_cuda() && tensor->is_contiguous(), "lora_torch: expected a contiguous tensor on a GPU");
  TORCH_CHECK(tensor->dim() <= LK_MAX_RANK, "lora_torch: expected at most ", LK_MAX_RANK, " axes, found ", tensor->dim());
  view.data = tensor->data_ptr();
  view.dtype = dtype_of(*tensor);
  view.rank = static_cast<int32_t>(tensor->dim());
  for (int64_t i = 0; i < tensor->dim(); ++i) view.dims[i] = tensor->size(i);
  return view;
}

// On the tensor's device and in PyTorch's current stream of it; the device that was current is so again afterwards.
template <class Params>
void run(lk_status (*operation)(lk_context*, const Params*), const Params& params, const Tensor& on) {
  const c10::cuda::CUDAGuard device(on.device());
  lk_context* const context = context_of(on);
  const auto check = [&](lk_status status) { TORCH_CHECK(status == LK_OK, lk_last_error(context)); };
  check(lk_context_use_stream(context, at::cuda::getCurrentCUDAStream().stream()));
  check(operation(context, &params));
}

// y = x W^T + bias + scale s up^T and s = x down^T, which the backward pass needs.
std::tuple<Tensor, Tensor> lora_forward(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                                        const Tensor& down, const Tensor& up, double scale) {
  auto shape = x.sizes().vec();
  shape.back() = weight.size(0);
  Tensor y = torch::empty(shape, x.options());
  shape.back() = down.size(0);
  Tensor s = torch::empty(shape, x.options());
  lk_lora_forward_params p{};
  p.x = view(x), p.weight = view(weight), p.bias = view(bias), p.down = view(down), p.up = view(up);
  p.scale = static_cast<float>(scale);
  p.y = view(y), p.s = view(s);
  run(lk_lora_forward, p, x);
  return {y, s};
}

// dx (not where it is not wanted), ddown and dup.
std::tuple<std::optional<Tensor>, Tensor, Tensor> lora_backward(const Tensor& dy, const Tensor& x, const Tensor& s,
                                                                const Tensor& weight, const Tensor& down,
                                                                const Tensor& up, double scale, bool wants_dx) {
  std::optional<Tensor> dx;
  if (wants_dx) dx = torch::empty_like(x);
  Tensor ddown = torch::empty_like(down), dup = torch::empty_like(up);
  lk_lora_backward_params p{};
  p.dy = view(dy), p.x = view(x), p.s = view(s), p.weight = view(weight), p.down = view(down), p.up = view(up);
  p.scale = static_cast<float>(scale);
  p.dx = view(dx), p.ddown = view(ddown), p.dup = view(dup);
  run(lk_lora_backward, p, dy);
  return {dx, ddown, dup};
}

// o and the logarithms of the sums, for the backward pass. [B, S, H, D]
std::tuple<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  Tensor o = torch::empty_like(q);
  Tensor lse = torch::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(torch::kFloat32));
  lk_attention_params p{};
  p.q = view(q), p.k = view(k), p.v = view(v);
  p.scale = static_cast<float>(scale);
  p.o = view(o), p.lse = view(lse);
  run(lk_attention, p, q);
  return {o, lse};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& d_o, const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const Tensor& o, const Tensor& lse,
                                                      double scale) {
  Tensor dq = torch::empty_like(q), dk = torch::empty_like(k), dv = torch::empty_like(v);
  lk_attention_backward_params p{};
  p.d_o = view(d_o), p.q = view(q), p.k = view(k), p.v = view(v), p.o = view(o), p.lse = view(lse);
  p.scale = static_cast<float>(scale);
  p.dq = view(dq), p.dk = view(dk), p.dv = view(dv);
  run(lk_attention_backward, p, d_o);
  return {dq, dk, dv};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("lora_forward", &lora_forward);
  module.def("lora_backward", &lora_backward);
  module.def("attention_forward", &attention_forward);
  module.def("attention_backward", &attention_backward);
}
