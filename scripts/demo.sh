#!/usr/bin/env bash
# Installs what is missing, builds, and trains a LoRA of a real cat for the bundled small model, on the CPU.
#
#   scripts/demo.sh [OUTPUT_DIR]
#
# Writes the LoRA file, the loss curve and a grid of pictures "before | after" to OUTPUT_DIR/demo (default: output/demo) and
# says where they are. A run that was interrupted goes on where it stood.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=${1:-$root/output}
mkdir -p "$output"
output=$(cd "$output" && pwd)

"$root/scripts/setup.sh"
"$root/scripts/build.sh" "$root/build"

cd "$root"
# A finished run is made again from the start; its caches are kept.
if [ -e "$output/demo/demo.safetensors" ]; then rm -r "$output/demo"; fi
"$root/build/bin/lora-host" train --config examples/demo/train.yaml --out "$output" --resume
