#!/usr/bin/env python3
"""Plans every example configuration for the card that its name has: NAME_16gb.yaml for 16 GB.

  scripts/example_plans.py [--lists FOLDER] [--build BUILD] [CONFIG...]

Models stand in by files of the published names and shapes without contents, made from key lists, and photos by generated
ones, so that nothing has to be downloaded and no GPU is needed: `lora-host plan` looks at each configuration as --dry-run does
and predicts its step. A row is printed for each; the exit status is 1 where a run does not fit its card. A configuration whose
models have no key list is named and left out.
"""
import argparse
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from many_samples import ROOT, make_photo

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1}
USABLE = 0.7  # GiB of a card that are its driver's and the libraries'
PHOTO_SIDE = 1024
# What the files of the examples are made of: key lists, each with what stands in front of its names.
VAE = "first_stage_model."
FILES = {
    "flux1-dev": [("flux1-dev", "")],
    "flux1-schnell": [("flux1-schnell", "")],
    "ae": [("ae", "")],
    "clip_l": [("clip_l", "")],
    "clip_g": [("clip_g", "")],
    "t5xxl_fp16": [("t5xxl", "")],
    "Chroma1-HD": [("Chroma1-HD", "")],
    "z_image_bf16": [("z_image", "")],
    "z_image_turbo_bf16": [("z_image", "")],
    "qwen_3_4b": [("qwen_3_4b", "")],
    "qwen_3_8b": [("qwen_3_8b", "")],
    "qwen_image_bf16": [("qwen_image", "")],
    "qwen_image_vae": [("qwen_image_vae", "")],
    "qwen_2.5_vl_7b": [("qwen_2.5_vl_7b.text", "")],
    "flux-2-klein-base-4b": [("flux2-klein-4b", "")],
    "flux-2-klein-base-9b": [("flux2-klein-9b", "")],
    "flux2-vae": [("flux2_ae", "")],
    "sd3.5_large": [("sd3.5_large", ""), ("ae", VAE)],
    "sd3.5_large_turbo": [("sd3.5_large", ""), ("ae", VAE)],
    "sd3.5_medium": [("sd3.5_medium", ""), ("ae", VAE)],
    "sd_xl_base_1.0": [("sd_xl_base_1.0", ""), ("sd_xl_base_1.0.conditioner", ""), ("sdxl_vae", VAE)],
}


def make_hollow(path, lists, parts):
    """A safetensors file of the right names, shapes and size, which takes no room on the disk."""
    header, end = {}, 0
    for name, prefix in parts:
        for key, (dtype, shape) in json.loads((lists / f"{name}.json").read_text())["tensors"].items():
            size = SIZES[dtype] * math.prod(shape)
            header[prefix + key] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            end += size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def plan(args, folder, config):
    """The row of the plan for the configuration's card; None where key lists are missing."""
    text = config.read_text()
    for model in re.findall(r"models/(\S+)", text):
        path = folder / "models" / model
        parts = FILES.get(path.stem) if path.suffix == ".safetensors" else None
        if parts is None or not all((args.lists / f"{name}.json").exists() for name, _ in parts):
            return None, f"left out: there is no key list for models/{model}"
        if not path.exists():
            make_hollow(path, args.lists, parts)
    size = int(re.search(r"_(\d+)gb$", config.stem)[1])
    done = subprocess.run([args.build / "bin/lora-host", "plan", "--config", config, "--card", f"{size} GiB", "--budget",
                           f"{size - USABLE:.1f}"], cwd=folder, capture_output=True, text=True, check=False)
    rows = re.findall(r"^ +[\d.]+ GiB  .*$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not rows:
        return False, (done.stdout + done.stderr).strip().splitlines()[-1]
    step = re.search(r"^step +(\d+ x \d+)", done.stdout, re.MULTILINE)[1]
    return "does not fit" not in rows[0], f"{step}: {' '.join(rows[0].split())}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=pathlib.Path,
                        default=os.environ.get("LORA_KEY_LISTS", ROOT / "../shared/data/headers"))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for number in range(4):
            make_photo(folder / "photos", number, PHOTO_SIDE)
        for config in args.configs or sorted((ROOT / "examples/configs").glob("*gb.yaml")):
            fits, text = plan(args, folder, config.resolve())
            bad += fits is False
            print(f"{config.stem}: {text}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
