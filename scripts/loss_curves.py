#!/usr/bin/env python3
"""Losses of lora-host beside those of the reference implementations, on the same batches.

    scripts/loss_curves.py [--build build] [--work FOLDER] [--steps 100] [--only NAME,...] [--picture FILE]

Trains the bundled small model (examples/toy_flux) on the demo's photographs with every optimizer and every adapter,
in float32 on the CPU: once with lora-host, once with PyTorch. There the model is diffusers' FluxTransformer2DModel, the
adapters are LyCORIS' and PEFT's modules, the optimizers those of the packages that docs/optimizers.md names. Both begin
with the same adapters and see the same latents, captions, noise and times: latents and text come from the caches that
lora-host writes; order, noise and times follow from (seed, step) by a port of host/core/random.cpp,
host/data/batches.cpp and the `sigmoid` law. Prints the largest relative difference of the losses of each run and draws
one picture. Runs that are in FOLDER are not made again.

Needs torch (2.9 for muon), diffusers, peft, lycoris-lora, safetensors, numpy, matplotlib, and for their optimizers
transformers, prodigyopt, prodigy-plus-schedule-free, schedulefree, dadaptation, came-pytorch, lion-pytorch and
bitsandbytes. Runs whose package is missing are left out, and said to be.
"""
import argparse
import csv
import hashlib
import importlib
import json
import pathlib
import shutil
import subprocess

import numpy as np
import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOY = ROOT / "examples/toy_flux"
PHOTOS = ROOT / "examples/demo/photos"
SEED, BATCH, RANK, TEXT = 42, 2, 8, 32
ORDER, NOISE, TIMESTEP, POSTERIOR = 2, 3, 4, 5  # Purpose of host/core/random.h


class Random:
    """Philox 4x32-10 with the counter (block, sample, step, purpose), as host/core/random.cpp has it."""

    def __init__(self, purpose, step, sample=0):
        self.counter = [0, sample, step & 0xFFFFFFFF, purpose << 24 | step >> 32 & 0xFFFFFF]

    def words(self, blocks):
        """The next words, [blocks, 4]."""
        c = [np.full(blocks, v, np.uint64) for v in self.counter]
        c[0] = c[0] + np.arange(blocks, dtype=np.uint64)
        self.counter[0] += blocks
        key, low = [SEED & 0xFFFFFFFF, SEED >> 32], np.uint64(0xFFFFFFFF)
        for _ in range(10):
            a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
            c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(key[0]), b & low,
                 a >> np.uint64(32) ^ c[3] ^ np.uint64(key[1]), a & low]
            key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
        return np.stack(c, 1)

    def pairs(self, count):
        """count pairs of uniform numbers in (0, 1): a block makes a pair."""
        w = self.words(count)
        high, low = w[:, 0::2] >> np.uint64(5), w[:, 1::2] >> np.uint64(6)
        return ((high * np.uint64(67108864) + low).astype(np.float64) + 0.5) / 9007199254740992.0

    def uniforms(self, count):
        return self.pairs((count + 1) // 2).reshape(-1)[:count]

    def normals(self, count):
        """What fill_normal gives, float32."""
        u, v = self.pairs((count + 1) // 2).T
        radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
        both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
        return both.reshape(-1)[:count].astype(np.float32)

    def normal(self):
        u, v = self.pairs(1)[0]
        return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def shuffled(items, numbers):
    """Fisher-Yates with uniform numbers from an iterator."""
    for i in range(len(items), 1, -1):
        j = int(next(numbers) * i)
        items[i - 1], items[j] = items[j], items[i - 1]


def epoch(number, samples):
    """Batches of sample numbers (BatchOrder::epoch) where all samples are of one bucket."""
    numbers = iter(Random(ORDER, number).uniforms(1000))
    items = list(range(samples))
    shuffled(items, numbers)
    batches = [[items[(start + j) % samples] for j in range(BATCH)] for start in range(0, samples, BATCH)]
    order = list(range(len(batches)))
    shuffled(order, numbers)
    return [batches[i] for i in order]


class Batches:
    """What each step is trained on: noisy latents, target [B, C, H, W], times [B], and the text."""

    def __init__(self, cache):
        photos = sorted(PHOTOS.glob("*.jpg"))
        self.posteriors = []
        for photo in photos:
            digest = hashlib.sha256(photo.read_bytes()).hexdigest()[:32]
            (file,) = (cache / "latents").glob(digest + "-*.safetensors")
            self.posteriors.append(load_file(file)["posterior"].numpy()[0])
        (file,) = (cache / "text").glob("*.safetensors")  # all photographs have one caption
        self.text = {key: value.float() for key, value in load_file(file).items()}

    def step(self, index):
        per_epoch = -(-len(self.posteriors) // BATCH)
        batch = epoch(index // per_epoch, len(self.posteriors))[index % per_epoch]
        noisy, target, times = [], [], []
        for lane, sample in enumerate(batch):
            mean, deviation = np.split(self.posteriors[sample], 2, axis=-1)
            x0 = mean + deviation * Random(POSTERIOR, index, lane).normals(mean.size).reshape(mean.shape)
            noise = Random(NOISE, index, lane).normals(mean.size).reshape(mean.shape)
            time = np.float32(1 / (1 + np.exp(-Random(TIMESTEP, index, lane).normal())))
            noisy.append((1 - time) * x0 + time * noise)
            target.append(noise - x0)
            times.append(time)
        as_image = lambda rows: torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).contiguous()
        return as_image(noisy), as_image(target), torch.tensor(np.array(times))


def diffusers_names(double, single):
    """Original module -> modules of diffusers that hold its rows, one after the other."""
    names = {"time_in.in_layer": ["time_text_embed.timestep_embedder.linear_1"],
             "time_in.out_layer": ["time_text_embed.timestep_embedder.linear_2"],
             "vector_in.in_layer": ["time_text_embed.text_embedder.linear_1"],
             "vector_in.out_layer": ["time_text_embed.text_embedder.linear_2"],
             "txt_in": ["context_embedder"], "img_in": ["x_embedder"], "final_layer.linear": ["proj_out"],
             "final_layer.adaLN_modulation.1": ["norm_out.linear"]}
    for i in range(double):
        a, b = f"double_blocks.{i}.", f"transformer_blocks.{i}."
        for side, mod, qkv, proj, ff in (("img", "norm1", ("to_q", "to_k", "to_v"), "to_out.0", "ff"),
                                         ("txt", "norm1_context", ("add_q_proj", "add_k_proj", "add_v_proj"),
                                          "to_add_out", "ff_context")):
            names[f"{a}{side}_mod.lin"] = [f"{b}{mod}.linear"]
            names[f"{a}{side}_attn.qkv"] = [f"{b}attn.{part}" for part in qkv]
            names[f"{a}{side}_attn.proj"] = [f"{b}attn.{proj}"]
            names[f"{a}{side}_mlp.0"] = [f"{b}{ff}.net.0.proj"]
            names[f"{a}{side}_mlp.2"] = [f"{b}{ff}.net.2"]
            added = "" if side == "img" else "added_"
            for part, short in (("query", "q"), ("key", "k")):
                names[f"{a}{side}_attn.norm.{part}_norm"] = [f"{b}attn.norm_{added}{short}"]
    for i in range(single):
        a, b = f"single_blocks.{i}.", f"single_transformer_blocks.{i}."
        names[a + "modulation.lin"] = [b + "norm.linear"]
        names[a + "linear1"] = [b + "attn.to_q", b + "attn.to_k", b + "attn.to_v", b + "proj_mlp"]
        names[a + "linear2"] = [b + "proj_out"]
        for part, short in (("query", "q"), ("key", "k")):
            names[f"{a}norm.{part}_norm"] = [f"{b}attn.norm_{short}"]
    return names


class Reference:
    """diffusers' model, to be called with other weights of the layers that are adapted."""

    def __init__(self):
        from diffusers import FluxTransformer2DModel
        self.original = {k: v.float() for k, v in load_file(TOY / "flux_toy.safetensors").items()}
        width = self.original["img_in.weight"].shape[0]
        count = lambda prefix: len({k.split(".")[1] for k in self.original if k.startswith(prefix)})
        double, single = count("double_blocks."), count("single_blocks.")
        self.model = FluxTransformer2DModel(
            in_channels=64, num_layers=double, num_single_layers=single, attention_head_dim=128,
            num_attention_heads=width // 128, joint_attention_dim=self.original["txt_in.weight"].shape[1],
            pooled_projection_dim=self.original["vector_in.in_layer.weight"].shape[1], guidance_embeds=False)
        self.names = diffusers_names(double, single)
        self.rows = {name: p.shape[0] for name, p in self.model.named_parameters()}
        state = {}
        for key, value in self.original.items():
            module, kind = key.rsplit(".", 1)
            kind = "weight" if kind == "scale" else kind
            if module.startswith("final_layer.adaLN"):
                value = torch.cat(value.chunk(2)[::-1])
            state.update(self.split(module, kind, value))
        self.model.load_state_dict(state)
        self.model.requires_grad_(False)

    def split(self, module, kind, value):
        keys = [f"{name}.{kind}" for name in self.names[module]]
        return dict(zip(keys, value.split([self.rows[key] for key in keys])))

    def loss(self, weights, batch, text):
        """weights: by original module."""
        noisy, target, times = batch
        b, c, h, w = noisy.shape
        tokens = noisy.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, c * 4)
        axes = torch.zeros(1), torch.arange(h / 2), torch.arange(w / 2)
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        parts = {}
        for module, weight in weights.items():
            parts.update(self.split(module, "weight", weight))
        out = torch.func.functional_call(self.model, parts, kwargs=dict(
            hidden_states=tokens, timestep=times, encoder_hidden_states=text["text"].expand(b, -1, -1),
            pooled_projections=text["pooled"].expand(b, -1), img_ids=places.reshape(-1, 3),
            txt_ids=torch.zeros(text["text"].shape[1], 3), return_dict=False))[0]
        out = out.view(b, h // 2, w // 2, c, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w)
        return torch.nn.functional.mse_loss(out, target)


def adapted_layer(kind, name, weight):
    """A module of LyCORIS or PEFT around a layer without bias, and what the layer's new weight is."""
    out, inputs = weight.shape
    layer = torch.nn.Linear(inputs, out, bias=False)
    layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    eye = torch.eye(inputs)
    if kind == "full":
        diff = torch.nn.Module()
        diff.diff = torch.nn.Parameter(torch.zeros(out, inputs))
        return diff, lambda: weight + diff.diff
    if kind in ("pissa", "olora"):
        from peft import LoraConfig
        from peft.tuners.lora.layer import Linear
        config = LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights=kind)
        module = Linear(layer, "default", config=config, r=RANK, lora_alpha=RANK, init_lora_weights=kind)
        return module, lambda: module(eye).T
    lycoris = importlib.import_module("lycoris.modules")
    classes = {"lora": ("locon", "LoConModule", {}),
               "dora": ("locon", "LoConModule", {"weight_decompose": True, "wd_on_out": False}),
               "loha": ("loha", "LohaModule", {}), "lokr": ("lokr", "LokrModule", {"factor": 8})}
    file, cls, options = classes[kind]
    module = getattr(importlib.import_module(f"lycoris.modules.{file}"), cls)(
        name, layer, multiplier=1.0, lora_dim=RANK, alpha=RANK, **options)
    module.apply_to()
    return module, lambda: module(eye).T


def optimizer_of(package, name, **options):
    def make(parameters):
        return getattr(importlib.import_module(package), name)(parameters, **options)
    return make


# name -> learning rate, optimizer_params of lora-host, the reference. Options are the defaults of both unless given.
OPTIMIZERS = {
    "adamw": (1e-3, {}, optimizer_of("torch.optim", "AdamW", lr=1e-3)),
    "adam": (1e-3, {}, optimizer_of("torch.optim", "Adam", lr=1e-3)),
    "adamw8bit": (1e-3, {}, optimizer_of("bitsandbytes.optim", "AdamW8bit", lr=1e-3)),
    "sgd": (0.5, {"momentum": 0.9}, optimizer_of("torch.optim", "SGD", lr=0.5, momentum=0.9)),
    "rmsprop": (3e-4, {}, optimizer_of("torch.optim", "RMSprop", lr=3e-4)),
    "lion": (1e-4, {}, optimizer_of("lion_pytorch", "Lion", lr=1e-4)),
    "lion8bit": (1e-4, {}, optimizer_of("bitsandbytes.optim", "Lion8bit", lr=1e-4)),
    "adafactor": (1e-3, {}, optimizer_of("transformers.optimization", "Adafactor")),
    "came": (2e-4, {}, optimizer_of("came_pytorch", "CAME", lr=2e-4)),
    "prodigy": (1, {}, optimizer_of("prodigyopt", "Prodigy", lr=1.0)),
    "prodigy_plus_schedulefree": (1, {}, optimizer_of("prodigyplus.prodigy_plus_schedulefree",
                                                      "ProdigyPlusScheduleFree", lr=1.0)),
    "dadapt_adam": (0.3, {}, optimizer_of("dadaptation", "DAdaptAdam", lr=0.3)),
    "schedulefree_adamw": (2e-3, {}, optimizer_of("schedulefree", "AdamWScheduleFree", lr=2e-3)),
    "schedulefree_radam": (2e-3, {}, optimizer_of("schedulefree", "RAdamScheduleFree", lr=2e-3)),
    "muon": (1e-3, {}, optimizer_of("torch.optim", "Muon", lr=1e-3)),
}
ADAPTERS = {"lora": {}, "dora": {"type": "dora"}, "loha": {"type": "loha"}, "lokr": {"type": "lokr", "factor": 8},
            "full": {"type": "full"}, "pissa": {"init": "pissa"}, "olora": {"init": "olora"}}
RATES = {"full": 1e-4, "pissa": 2e-4, "olora": 2e-4, "dora": 1e-3}


def run_host(host, work, name, adapter, optimizer, lr, params, steps):
    """Losses of lora-host; its files are in work/name."""
    options = {k: v for k, v in ADAPTERS[adapter].items() if k != "type"}
    config = {"name": name, "training_folder": str(work), "device": "cpu",
              "model": {"name_or_path": str(TOY / "flux_toy.safetensors"), "vae_path": str(TOY / "ae.safetensors"),
                        "clip_path": str(TOY / "clip_l.safetensors"), "t5_path": str(TOY / "t5xxl.safetensors"),
                        "max_sequence_length": TEXT},
              "network": {"type": ADAPTERS[adapter].get("type", "lora"), "linear": RANK, "linear_alpha": RANK,
                          "network_kwargs": options},
              "datasets": [{"folder_path": str(PHOTOS), "resolution": 128, "buckets": False}],
              "train": {"batch_size": BATCH, "steps": steps, "lr": lr, "optimizer": optimizer, "dtype": "fp32",
                        "optimizer_params": params, "seed": SEED, "timestep_type": "sigmoid", "max_grad_norm": 1.0},
              "save": {"dtype": "float32", "save_every": 0}}
    shutil.rmtree(work / name, ignore_errors=True)  # of a run that was broken off
    file = work / f"{name}.yaml"
    file.write_text(json.dumps(config))
    done = subprocess.run([host, "train", "--config", file], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name}: lora-host failed:\n{done.stdout}{done.stderr}")
    with open(work / name / "metrics.csv") as rows:
        return [float(row["loss"]) for row in csv.DictReader(rows)]


def run_reference(reference, batches, start, adapter, make_optimizer, steps):
    """Losses of PyTorch. start: tensors of the adapters in lora-host's file; PiSSA and OLoRA begin by themselves."""
    layers = {}
    for module in reference.names:
        key = "lora_unet_" + module.replace(".", "_") + "."
        own = {k[len(key):]: v for k, v in start.items() if k.startswith(key) and not k.endswith(".alpha")}
        if not own:
            continue
        made, weight = adapted_layer(adapter, module.replace(".", "_"), reference.original[module + ".weight"])
        trained = {k: p for k, p in made.named_parameters() if p.requires_grad}
        if adapter not in ("pissa", "olora"):
            if set(trained) != set(own):
                raise SystemExit(f"{adapter} {module}: trains {sorted(trained)}, lora-host {sorted(own)}")
            with torch.no_grad():
                for k, p in trained.items():
                    p.copy_(own[k])
        layers[module] = (list(trained.values()), weight)
    parameters = [p for trained, _ in layers.values() for p in trained]
    optimizer = make_optimizer(parameters)
    if hasattr(optimizer, "train"):
        optimizer.train()  # the schedule-free ones train at y
    losses = []
    for index in range(steps):
        loss = reference.loss({m: weight() for m, (_, weight) in layers.items()}, batches.step(index), batches.text)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def draw(runs, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    columns = 7
    rows = -(-len(runs) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.5 * columns, 2.2 * rows), sharex=True, squeeze=False)
    smooth = lambda v: np.convolve(v, np.ones(10) / 10, "valid")
    for axis, (name, run) in zip(axes.flat, runs.items()):
        axis.plot(smooth(run["reference"]), color="0.7", linewidth=4, label="reference")
        axis.plot(smooth(run["host"]), color="tab:red", linewidth=1, label="lora-host")
        axis.set_title(f"{name}: {run['difference']:.1e}", fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(runs):]:
        axis.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.suptitle("Loss on the same batches, mean of 10 steps; the number: largest relative difference of a step")
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/loss_curves"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/images/loss_curves.png")
    arguments = parser.parse_args()
    work, host = arguments.work, arguments.build / "bin/lora-host"
    work.mkdir(parents=True, exist_ok=True)
    # name -> adapter, optimizer
    plans = {name: ("lora", name) for name in OPTIMIZERS}
    plans |= {name: (name, "adamw") for name in ADAPTERS if name != "lora"}
    reference, batches, starts, runs = None, None, {}, {}
    for name, (adapter, optimizer) in plans.items():
        if arguments.only and name not in arguments.only.split(","):
            continue
        result = work / f"{name}.json"
        if not result.exists():
            lr, params, make = OPTIMIZERS[optimizer]
            if adapter != "lora" and adapter in RATES:
                lr = RATES[adapter]
                make = optimizer_of("torch.optim", "AdamW", lr=lr)
            try:
                make([torch.nn.Parameter(torch.zeros(2, 2))])
            except (ImportError, AttributeError) as missing:
                print(f"{name}: left out, {missing}")
                continue
            if adapter not in starts:  # a step that moves nothing shows what the adapters begin with; zeros by 1e-30
                run_host(host, work, f"start_{adapter}", adapter, "sgd", 1e-30, {}, 1)
                file = load_file(work / f"start_{adapter}" / f"start_{adapter}.safetensors")
                starts[adapter] = {k: torch.where(v.abs() < 1e-20, torch.zeros(()), v) for k, v in file.items()}
            host_losses = run_host(host, work, name, adapter, optimizer, lr, params, arguments.steps)
            reference = reference or Reference()
            batches = batches or Batches(work / "cache")
            losses = run_reference(reference, batches, starts[adapter], adapter, make, arguments.steps)
            result.write_text(json.dumps({"host": host_losses, "reference": losses}))
        run = json.loads(result.read_text())
        a, b = np.array(run["host"]), np.array(run["reference"])
        run["difference"] = float(np.max(np.abs(a - b) / b))
        runs[name] = run
        print(f"{name:26} first {a[0]:.6f} {b[0]:.6f}  mean of the last ten {a[-10:].mean():.6f} {b[-10:].mean():.6f}  "
              f"largest relative difference {run['difference']:.1e}", flush=True)
    if runs:
        draw(runs, arguments.picture)


if __name__ == "__main__":
    main()
