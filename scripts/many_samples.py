#!/usr/bin/env python3
"""What many samples cost: runs of the bundled small model on generated images, each with a caption of its own.

  scripts/many_samples.py [--samples 10,100000] [--steps 50] [--device cpu] [--folder FOLDER] [--build BUILD]

For each number of samples the first run encodes what is not cached, which is not measured; the second trains one step and
ends, the third trains so many more. Printed are seconds to the end of the first step, seconds a step, and the most
memory that the process held (its resident set, of which files in the page cache are no part). FOLDER keeps images and
caches for another look; without it they are removed.

Encoding takes the time of the encoders' products, 80 ms of a core for each picture of 64 x 64 pixels with the bundled VAE.
Pictures here are as small as a run takes them, and the VAE is one of 32 channels throughout with made-up weights.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIDE = 32  # the smallest resolution that a configuration may ask for

CONFIG = """plugin: flux
name: {name}
device: {device}
training_folder: {folder}/runs
model:
  name_or_path: {toy}/flux_toy.safetensors
  vae_path: {vae}
  clip_path: {toy}/clip_l.safetensors
  t5_path: {toy}/t5xxl.safetensors
network:
  linear: 4
datasets:
  - folder_path: {folder}/photos
    resolution: {side}
    caption_dropout_rate: 0
train:
  steps: {steps}
  seed: 1
sample:
  prompts: []
save:
  save_every: 0
"""


def png(number, side):
    """A picture of its own for each number."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    colours = bytes((number >> shift & 255) for shift in (0, 8, 16))
    row = b"\0" + (colours + bytes(255 - c for c in colours)) * (side // 2)
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * side)) + chunk(b"IEND", b"")


def make_photo(folder, number, side=SIDE):
    """With its caption; one that is there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{number:06}.png"
    if not picture.exists():
        picture.write_bytes(png(number, side))
        picture.with_suffix(".txt").write_text(f"picture number {number}")


def make_vae(args, file):
    """A VAE with the layers of the golden cases', all as wide as the narrowest of them."""
    if file.exists():
        return
    channels, tensors = 32, {}
    for case in "vae_flux_encode", "vae_flux_decode":
        weights = json.loads((ROOT / "tests/data/golden" / case / "case.json").read_text())["weights"]
        for name, weight in weights.items():
            if "nin_shortcut" not in name:  # from one width to another
                tensors[name] = ["F32", [channels if size > channels else size for size in weight["shape"]]]
    keys = file.with_suffix(".json")
    keys.write_text(json.dumps({"tensors": tensors}))
    subprocess.run([args.build / "bin/lora-host", "make-checkpoint", "--like", keys, file, "--force"], check=True,
                   stdout=subprocess.DEVNULL)


def train(args, folder, name, steps):
    """Seconds and peak resident bytes of a run."""
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(name=name, device=args.device, folder=folder, toy=ROOT / "examples/toy_flux",
                                    vae=folder / "vae.safetensors", side=SIDE, steps=steps))
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    begun = time.monotonic()
    with open(folder / f"{name}.log", "w") as log:
        child = subprocess.Popen([args.build / "bin/lora-host", "train", "--config", config], stdout=log,
                                 stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"many_samples: the run failed:\n{(folder / f'{name}.log').read_text()[-4000:]}")
    return time.monotonic() - begun, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default="10,100000")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args = parser.parse_args()
    print("| samples | encoding | first step | a step | host memory |\n|---|---|---|---|---|", flush=True)
    for count in map(int, args.samples.split(",")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.folder or pathlib.Path(temporary)).resolve() / str(count)
            for number in range(count):
                make_photo(folder / "photos", number)
            make_vae(args, folder / "vae.safetensors")
            encoding, _ = train(args, folder, "encoding", 1)
            first, _ = train(args, folder, "first", 1)
            whole, peak = train(args, folder, "whole", 1 + args.steps)
            print(f"| {count} | {encoding:.1f} s | {first:.2f} s | {1e3 * (whole - first) / args.steps:.1f} ms "
                  f"| {peak / 2**20:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
