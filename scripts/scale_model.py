#!/usr/bin/env python3
"""What a step of several GPUs takes, by the model of docs/scale.md: measured points beside it, and drawn to 1024 GPUs.

    scripts/scale_model.py [--picture FILE]

Ends with 1 where a measured point is more than a tenth from the model. Needs matplotlib.
"""
import argparse
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = {"SDXL": 170.2e6, "Flux.1 dev": 306.3e6}  # float32 gradients of rank 16
BACKWARD = 0.7  # of a step: what sums can go beside
WAITED_FOR = 8e-3  # seconds: shorter sums are waited for (host/train/gradient_sum.cpp)
BESIDE = 7e-3  # seconds that a step loses to the multiprocessors that NCCL holds beside it, 5 to 9 measured
HOP, BUCKETS = 20e-6, 4  # of a network

# Bytes a second of a sum over all GPUs, by how they reach each other; 90% of what a network adapter is called.
LINKS = {"400 Gb/s": 45e9, "100 Gb/s": 11e9, "25 Gb/s": 2.8e9}
NVLINK = {"any order": 230e9, "in order": 224e9, "in order, two buckets": 160e9}  # two GPUs of one machine

# Model, way, alone, sums and step as measured on two H200s of one machine, 2026-11-25, ms.
MEASURED = [
    ("SDXL", "in order", 66.11, 0.76, 67.03),
    ("SDXL", "any order", 65.71, 0.72, 66.60),
    ("Flux.1 dev", "in order, two buckets", 323.10, 1.92, 326.37),
    ("Flux.1 dev", "any order", 323.12, 1.33, 325.82),
]


def ring(model, gpus, rate):
    """Seconds of the sums over a ring or tree, in which a GPU sends each gradient twice, but for its own share."""
    return 2 * (gpus - 1) / gpus * BYTES[model] / rate + BUCKETS * 2 * math.log2(gpus) * HOP


def step(alone, sums):
    """Seconds of a step: short sums behind the backward pass, others beside it."""
    return alone + (sums if sums < WAITED_FOR else BESIDE + max(0.0, sums - BACKWARD * alone))


def measured():
    """Rows of (what, model, measured, difference)."""
    for model, way, alone, sums, together in MEASURED:
        said = BYTES[model] / NVLINK[way]
        yield f"sums of {model}, {way}", 1e3 * said, sums, 1e3 * said / sums - 1
        whole = 1e3 * step(alone / 1e3, said)
        yield f"step of {model}, {way}", whole, together, whole / together - 1


def draw(path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, constrained_layout=True)
    numbers = [2**k for k in range(1, 11)]
    for panel, (model, alone) in zip(axes, (("Flux.1 dev", 323.1), ("SDXL", 65.7))):
        for name, rate in LINKS.items():
            scaling = [alone / (1e3 * step(alone / 1e3, ring(model, n, rate))) for n in numbers]
            panel.plot(numbers, scaling, label=f"{name} a GPU, predicted")
        found = [row[2] / row[4] for row in MEASURED if row[0] == model]
        panel.plot([2] * len(found), found, "o", color="black", label="two GPUs with NVLink, measured")
        panel.set(xlabel="GPUs", title=model)
        panel.set_xscale("log", base=2)
        panel.set_xticks([2, 8, 32, 128, 1024], ["2", "8", "32", "128", "1024"])
        panel.grid(alpha=0.3)
    axes[0].set(ylabel="steps a second and GPU, of one alone", ylim=(0, 1.05))
    axes[0].legend(loc="lower left", fontsize=8)
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/images/scale.png")
    arguments = parser.parse_args()
    far = False
    for what, said, found, off in measured():
        print(f"{what:45} model {said:7.2f} ms, measured {found:7.2f} ms, {100 * off:+.1f}%")
        far |= abs(off) > 0.1
    for gpus in (16, 128, 1024):
        sums = {name: 1e3 * ring("Flux.1 dev", gpus, rate) for name, rate in LINKS.items()}
        print(f"{gpus:5} GPUs, sums of Flux.1 dev: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in sums.items()))
    draw(arguments.picture)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
