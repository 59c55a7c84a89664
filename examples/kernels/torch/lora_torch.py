"""A LoRA layer and attention of liblora_kernels as autograd functions of PyTorch, in its current stream.

    import lora_torch
    y = lora_torch.lora_linear(x, weight, bias, down, up, scale)   # x W^T + bias + scale (x down^T) up^T
    o = lora_torch.attention(q, k, v)                              # [B, S, H, D], softmax(q k^T / sqrt(D)) v

The extension is compiled at the first import, against an installed lora-host: LORA_PREFIX says where that is.
"""

import os
import pathlib

import torch
from torch.utils import cpp_extension


def _load():
    here = pathlib.Path(__file__).resolve().parent
    prefix = os.environ.get("LORA_PREFIX", "/usr/local")
    libraries = [str(p) for p in pathlib.Path(prefix).glob("lib*/**/liblora_kernels.so")]
    if not libraries:
        raise ImportError(
            f"lora_torch: no liblora_kernels.so below {prefix}/lib: install lora-host and set LORA_PREFIX to where it is"
        )
    folder = os.path.dirname(libraries[0])
    return cpp_extension.load(
        name="lora_torch_extension",
        sources=[str(here / "lora_torch.cpp")],
        extra_include_paths=[os.path.join(prefix, "include")],
        extra_cflags=["-O2", "-std=c++20"],
        extra_ldflags=[f"-L{folder}", "-llora_kernels", f"-Wl,-rpath,{folder}"],
        with_cuda=True,
    )


_kernels = _load()


class LoraLinear(torch.autograd.Function):
    """Gradients of x, down and up; weight and bias are frozen. down and up are float32, as they are trained."""

    @staticmethod
    def forward(ctx, x, weight, bias, down, up, scale):
        x = x.contiguous()
        y, s = _kernels.lora_forward(x, weight, bias, down, up, scale)
        ctx.save_for_backward(x, s, weight, down, up)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, dy):
        x, s, weight, down, up = ctx.saved_tensors
        dx, ddown, dup = _kernels.lora_backward(
            dy.contiguous(), x, s, weight, down, up, ctx.scale, ctx.needs_input_grad[0]
        )
        return dx, None, None, ddown, dup, None


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        o, lse = _kernels.attention_forward(q, k, v, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.scale = scale
        return o

    @staticmethod
    def backward(ctx, d_o):
        dq, dk, dv = _kernels.attention_backward(d_o.contiguous(), *ctx.saved_tensors, ctx.scale)
        return dq, dk, dv, None


def lora_linear(x, weight, bias, down, up, scale):
    return LoraLinear.apply(x, weight, bias, down, up, scale)


def attention(q, k, v, scale=None):
    return Attention.apply(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale)
