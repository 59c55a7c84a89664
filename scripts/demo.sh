#!/usr/bin/env bash
# Installs what is missing, builds, and trains a LoRA of a real cat for the bundled small model.
#
#   scripts/demo.sh [--device cpu|cuda] [OUTPUT_DIR]
#
# Writes the LoRA file, the loss curve and a grid of images "before | after" to OUTPUT_DIR/demo (default: output/demo) and
# says where they are. A run that was interrupted goes on where it stood. Without --device a GPU is used where there is
# one. BUILD=DIR takes the programs of a build that is there already.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
device=
output=$root/output
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=${2:-}; shift ;;
    --device=*) device=${1#*=} ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "demo: unknown option $1" >&2; exit 2 ;;
    *) output=$1 ;;
  esac
  shift || true
done
mkdir -p "$output"
output=$(cd "$output" && pwd)

if [ -z "${BUILD:-}" ]; then
  BUILD=$root/build
  "$root/scripts/setup.sh"
  "$root/scripts/build.sh" --arch one "$BUILD"
fi
if [ -z "$device" ]; then
  device=cpu
  if nvidia-smi -L >/dev/null 2>&1 && "$BUILD/bin/lora-host" --version | grep -q 'cuda,'; then device=cuda; fi
fi

cd "$root"
# A finished run is made again from the start; its caches are kept.
if [ -e "$output/demo/demo.safetensors" ]; then rm -r "$output/demo"; fi
"$BUILD/bin/lora-host" train --config examples/demo/train.yaml --device "$device" --out "$output" --resume
