#!/usr/bin/env bash
# What a training step takes under budgets of memory and on slower links, predicted beside measured: the table of
# docs/memory.md, a row for each run of `lora-host bench`. Needs a GPU with more memory than the largest budget.
#
#   scripts/bench_memory.sh OUT_DIR [NAME...]
#
# NAMEs: flux1-dev sd3.5_large sd_xl_base_1.0; all of them unless named. Writes OUT_DIR/table.md, which grows with each
# row, and a log of each run. Environment:
#   BUILD            build directory (build-gpu)
#   LORA_KEY_LISTS   folder with key lists of published checkpoints
#   BENCH_FLAGS      further flags for each run (--repeat 6)
# The exit status is 1 if a row is missing.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
names=" ${*:-flux1-dev sd3.5_large sd_xl_base_1.0} "
build=${BUILD:-$root/build-gpu}
lists=${LORA_KEY_LISTS:-$root/../shared/data/headers}
read -r -a more <<<"${BENCH_FLAGS:---repeat 6}"
missing=0
number=0
# More than any of these steps takes: the plan is free to keep everything.
plenty=120

cat >"$out/table.md" <<'TABLE'
| step | budget | link | made again | activations in host memory | weights in host memory | predicted | measured | error | planned | taken | error |
|---|---|---|---|---|---|---|---|---|---|---|---|
TABLE

# row TEXT FLAGS...: one run, and its line of the table.
row() {
  local text=$1 log line
  shift
  number=$((number + 1))
  log=$(printf '%s/%02d.log' "$out" "$number")
  echo "lora-host bench $*" >"$log"
  "$build/bin/lora-host" bench "$@" "${more[@]}" >>"$log" 2>&1
  line=$(sed -n 's/^row  *//p' "$log")
  if [ -z "$line" ]; then
    missing=$((missing + 1))
    line="| $(grep -m 1 'error: ' "$log" || tail -n 1 "$log") |"
  fi
  echo "| $text $line" | tee -a "$out/table.md"
}

# budgets TEXT BUDGETS SLOW FLAGS...: a row for each budget on the link as it is, then for each of SLOW on slower links.
budgets() {
  local text=$1 all=$2 slow=$3 budget link
  shift 3
  for budget in $all; do row "$text" "$@" --budget "$budget"; done
  for link in 24 12; do
    for budget in $slow; do row "$text" "$@" --budget "$budget" --link "$link"; done
  done
}

large_images=(--resolution 1024 --rank 16)
small_images=(--resolution 768 --rank 16)
eight=(--model-dtype float8_e4m3 --products float8)

if [[ $names == *" flux1-dev "* ]]; then
  flux=(--plugin flux --like "$lists/flux1-dev.json")
  row "Flux.1 dev, bf16, all made again" "${flux[@]}" "${large_images[@]}" --budget $plenty --recompute 100%
  row "Flux.1 dev, fp8, all made again" "${flux[@]}" "${eight[@]}" "${large_images[@]}" --budget $plenty --recompute 100%
  budgets "Flux.1 dev, bf16" "24" "" "${flux[@]}" "${large_images[@]}"
  budgets "Flux.1 dev, fp8" "$plenty 24 16 12 8" "12 8" "${flux[@]}" "${eight[@]}" "${large_images[@]}"
  budgets "Flux.1 dev, fp8, 768 x 768" "8" "8" "${flux[@]}" "${eight[@]}" "${small_images[@]}"
fi
if [[ $names == *" sd3.5_large "* ]]; then
  large=(--like "$lists/sd3.5_large.json" --text-length 333 "${large_images[@]}" "${eight[@]}")
  row "3.5 large, fp8, all made again" "${large[@]}" --budget $plenty --recompute 100%
  budgets "3.5 large, fp8" "$plenty 16 12 8" "12 8" "${large[@]}"
fi
if [[ $names == *" sd_xl_base_1.0 "* ]]; then
  sdxl=(--like "$lists/sd_xl_base_1.0.json" --text-length 77 "${large_images[@]}")
  row "SDXL, bf16, all made again" "${sdxl[@]}" --budget $plenty --recompute 100%
  budgets "SDXL, bf16" "$plenty 8 6" "8 6" "${sdxl[@]}"
  # The denoiser's list with that of the text encoders behind it.
  { head -n -2 "$lists/sd_xl_base_1.0.json" | sed '$s/$/,/' && sed '1,/"tensors"/d' "$lists/sd_xl_base_1.0.conditioner.json"; } \
    >"$out/sdxl.json"
  budgets "SDXL, bf16, text encoders trained" "$plenty 8 6" "8 6" --like "$out/sdxl.json" "${large_images[@]}" \
    --train-text-encoder true
fi

echo "$number rows, $missing without a result; $out/table.md"
[ $missing -eq 0 ]
