"""Holds lora_torch against PyTorch in float64, in a stream that is not the default one and in a CUDA graph, and times both.

    LORA_PREFIX=... python3 check.py            # the errors; exit status 1 if one is too large
    LORA_PREFIX=... python3 check.py --time     # and times, medians of replayed graphs
"""

import statistics
import sys

import torch
import torch.nn.functional as F

import lora_torch

# An error may be so many times what PyTorch's own operations in the same type have, or the type's resolution.
TIMES = 4
torch.backends.cuda.matmul.allow_tf32 = False


def lora_inputs(rows, width, out, rank, dtype):
    make = torch.Generator("cuda").manual_seed(1)
    normal = lambda *shape, to=dtype: torch.randn(*shape, generator=make, device="cuda").to(to)
    x = normal(rows, width)
    weight, bias = normal(out, width) * width**-0.5, normal(out)
    down, up = normal(rank, width, to=torch.float32) * width**-0.5, normal(out, rank, to=torch.float32)
    return [x, weight, bias, down, up], [0, 3, 4], normal(rows, out)


def plain_lora(x, weight, bias, down, up):
    return F.linear(x, weight, bias) + 0.5 * F.linear(F.linear(x, down.to(x.dtype)), up.to(x.dtype))


def attention_inputs(batch, rows, heads, channels, dtype):
    make = torch.Generator("cuda").manual_seed(2)
    normal = lambda: torch.randn(batch, rows, heads, channels, generator=make, device="cuda").to(dtype)
    return [normal(), normal(), normal()], [0, 1, 2], normal()


def plain_attention(q, k, v):
    return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


def run(function, inputs, trained, gradient):
    """The result, and the gradients of what is trained."""
    given = [t.detach().clone().requires_grad_(i in trained) for i, t in enumerate(inputs)]
    result = function(*given)
    result.backward(gradient.to(result.dtype))
    return [result.detach()] + [given[i].grad for i in trained]


CASES = [
    ("lora 77 x 768, 16", lora_inputs, (77, 768, 768, 16), lambda *t: lora_torch.lora_linear(*t, 0.5), plain_lora),
    ("lora 4608 x 3072, 16", lora_inputs, (4608, 3072, 3072, 16), lambda *t: lora_torch.lora_linear(*t, 0.5), plain_lora),
    ("attention 300 x 64", attention_inputs, (2, 300, 4, 64), lora_torch.attention, plain_attention),
    ("attention 1536 x 128", attention_inputs, (1, 1536, 24, 128), lora_torch.attention, plain_attention),
]


def worst(got, want):
    return max((g.double() - w).norm().item() / w.norm().item() for g, w in zip(got, want))


def recorded(function, inputs, trained, gradient):
    """The forward and backward pass as a CUDA graph, and what it gives, in the memory of the graph."""
    given = [t.detach().clone().requires_grad_(i in trained) for i, t in enumerate(inputs)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    wanted = [given[i] for i in trained]
    step = lambda: torch.autograd.grad(function(*given), wanted, gradient)
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        gradients = step()
    return graph, gradients


def microseconds(graph, calls=20, rounds=7):
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(end) / calls)
    return statistics.median(times)


def main():
    failed = 0
    for name, make, sizes, ours, theirs in CASES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            inputs, trained, gradient = make(*sizes, dtype)
            want = run(theirs, [t.double() for t in inputs], trained, gradient.double())
            naive = worst(run(theirs, inputs, trained, gradient), want)
            # Behind work in a stream of the caller's: in another one it would read what is not there yet.
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                late = [t * 0 for t in inputs]
                torch.cuda._sleep(20_000_000)
                for t, value in zip(late, inputs):
                    t.copy_(value)
                got = run(ours, late, trained, gradient)
            torch.cuda.synchronize()
            graph, gradients = recorded(ours, inputs, trained, gradient)
            graph.replay()
            torch.cuda.synchronize()
            same = all(torch.equal(a, b) for a, b in zip(gradients, got[1:]))
            error, limit = worst(got, want), max(TIMES * naive, torch.finfo(dtype).eps)
            good = error <= limit and same
            failed += not good
            line = f"{'ok  ' if good else 'FAIL'} {name:22} {str(dtype)[6:]:9} error {error:.2e}, PyTorch's {naive:.2e}"
            if not same:
                line += ", the recorded step differs"
            if "--time" in sys.argv:
                peer, _ = recorded(theirs, inputs, trained, gradient)
                line += f"; forward and backward {microseconds(graph):.1f} us, PyTorch {microseconds(peer):.1f} us"
            print(line, flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
