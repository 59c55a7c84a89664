#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#
#   scripts/test.sh [--sanitize]
#
# Where a CUDA toolkit and cuDNN are found the CUDA backend is built too, for one GPU: LORA_CUDA_ARCH, or else the one in this
# machine, or else 9.0. The tests run on the CPU; scripts/gpu_check.sh runs them on a GPU. --sanitize is about the host's code
# and builds the CPU backend only.
# The last line is "N passed, N failed". The exit status is 1 if a test failed, or if none ran.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
options=(--arch one)
for argument in "$@"; do
  case $argument in
    --sanitize) build=$root/build-sanitize; options=(--sanitize --cuda off) ;;
    *) echo "usage: scripts/test.sh [--sanitize]" >&2; exit 2 ;;
  esac
done

"$root/scripts/setup.sh"
"$root/scripts/build.sh" "${options[@]}" "$build"

passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
count() { grep -cE "$1" "$log" || true; }

# A program that ends with an error although none of its tests failed (a crash, a leak) is a failure of its own.
add() { # add NAME STATUS PASSED FAILED
  local name=$1 status=$2 good=$3 bad=$4
  if [ "$status" -eq 77 ]; then  # what it needs is not on this machine
    echo "$name: $(tail -n 1 "$log")"
    return
  fi
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ "$bad" -gt 0 ]; then
    cat "$log"
    echo "test: $name failed (exit status $status)"
  fi
  echo "$name: $good passed, $bad failed"
  passed=$((passed + good))
  failed=$((failed + bad))
}

# As many at a time as there are processors: most tests wait for one thread, or for a run of their own.
shards=$(nproc)
[ "$shards" -le 8 ] || shards=8
pids=()
for ((shard = 0; shard < shards; ++shard)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$build/bin/lora_tests" >"$log.$shard" 2>&1 &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
for ((shard = 0; shard < shards; ++shard)); do cat "$log.$shard"; done >"$log"
rm -f "$log".*
add lora_tests "$status" "$(count '^\[       OK \]')" "$(count '^\[  FAILED  \] .* \([0-9]+ ms\)$')"

cases=()
for case in "$root"/tests/data/golden/*/case.json; do
  [ -f "$case" ] && cases+=("$(dirname "$case")")
done
if [ ${#cases[@]} -gt 0 ]; then
  status=0
  "$build/bin/golden_runner" "${cases[@]}" >"$log" 2>&1 || status=$?
  add golden_runner "$status" "$(count ' ok$')" "$(count ' FAIL$')"
fi

for script in "$root"/tests/*.sh; do
  [ -f "$script" ] || continue
  status=0
  bash "$script" "$build" >"$log" 2>&1 || status=$?
  good=$((status == 0)) bad=$((status != 0))  # a script is one test, unless its last line counts its own
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
  fi
  add "$(basename "$script")" "$status" "$good" "$bad"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
