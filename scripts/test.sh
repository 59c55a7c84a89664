#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#
#   scripts/test.sh [--sanitize]
#
# Where a CUDA toolkit and cuDNN are found the CUDA backend is built too, for one GPU: LORA_CUDA_ARCH, or else the one in this
# machine, or else 9.0. The tests run on the CPU; scripts/gpu_check.sh runs them on a GPU. --sanitize is about the host's code
# and builds the CPU backend only, source by source, whereas a build that begins here is made with build.sh --quick.
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

[ "$build" != "$root/build" ] || [ -e "$build/CMakeCache.txt" ] || options+=(--quick)

"$root/scripts/setup.sh"
"$root/scripts/build.sh" "${options[@]}" "$build"

passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What a log says but for what passed and for gtest's headings.
failures() { # failures LOG
  awk '
    / ok$|^ok / { next }
    /^\[ RUN      \]/ { if (running) printf "%s", test; test = ""; running = 1 }
    running { test = test $0 "\n" }
    /^\[       OK \]/ || /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { running = 0; next }
    /^\[  FAILED  \] .* \([0-9]+ ms\)$/ { printf "%s", test; running = 0; next }
    !running && !/^$|^Note: |^\[[-=]+\]|^\[  PASSED  \]|^\[  SKIPPED \]|^Running main/
    END { if (running) printf "%s", test }  # it ended within this one
  ' "$1"
}

# A program that ends with an error although none of its tests failed (a crash, a leak) is a failure of its own. What failed is
# printed behind the counts, at the end, where one looks.
add() { # add NAME STATUS LOG PASSED FAILED
  local name=$1 status=$2 log=$3 good=$4 bad=$5
  if [ "$status" -eq 77 ]; then  # what it needs is not on this machine
    echo "$name: $(tail -n 1 "$log")"
    return
  fi
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ "$bad" -gt 0 ]; then
    { echo "test: $name failed (exit status $status):"; failures "$log"; } >>"$work/failures"
  fi
  echo "$name: $good passed, $bad failed"
  passed=$((passed + good))
  failed=$((failed + bad))
}

# The jobs, each with a log of its own, as many at a time as there are processors: most wait for one thread, or for a run of
# their own. mpi_test, which waits most of its time, is beside the others. Those that take long come first, and lora_tests has
# more shards than there are processors, so that all end together.
shards=24
# Threads that wait leave their processor to the jobs beside them. Programs that find these set do not start once more for them.
export OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1
at_once=$(nproc)
[ "$at_once" -le 8 ] || at_once=8
start() { # start NAME COMMAND...
  local name=$1
  shift
  local limit
  while
    limit=$at_once
    [ "$name" = mpi_test.sh ] || [ -e "$work/mpi_test.sh.status" ] || limit=$((at_once + 1))
    [ "$(jobs -rp | wc -l)" -ge "$limit" ]
  do wait -n || true; done
  { local status=0; "$@" >"$work/$name.log" 2>&1 || status=$?; echo $status >"$work/$name.status"; } &
}
cases=()
for case in "$root"/tests/data/golden/*/case.json; do
  [ -f "$case" ] && cases+=("$(dirname "$case")")
done
scripts=(mpi_test.sh template_test.sh)
for script in "$root"/tests/*.sh; do
  [[ " ${scripts[*]} " != *" $(basename "$script") "* ]] || continue
  [ -f "$script" ] && scripts+=("$(basename "$script")")
done
for script in "${scripts[@]}"; do start "$script" bash "$root/tests/$script" "$build"; done
[ ${#cases[@]} -eq 0 ] || start golden_runner "$build/bin/golden_runner" "${cases[@]}"
for ((shard = 0; shard < shards; ++shard)); do
  start "lora_tests.$shard" env GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$build/bin/lora_tests"
done
wait

status=0
for ((shard = 0; shard < shards; ++shard)); do
  cat "$work/lora_tests.$shard.log" >>"$work/lora_tests.log"
  [ "$(cat "$work/lora_tests.$shard.status")" -eq 0 ] || status=$(cat "$work/lora_tests.$shard.status")
done
count() { grep -cE "$2" "$work/$1.log" || true; }
add lora_tests "$status" "$work/lora_tests.log" "$(count lora_tests '^\[       OK \]')" \
  "$(count lora_tests '^\[  FAILED  \] .* \([0-9]+ ms\)$')"
if [ ${#cases[@]} -gt 0 ]; then
  add golden_runner "$(cat "$work/golden_runner.status")" "$work/golden_runner.log" "$(count golden_runner ' ok$')" \
    "$(count golden_runner ' FAIL$')"
fi
for script in "${scripts[@]}"; do
  status=$(cat "$work/$script.status")
  good=$((status == 0)) bad=$((status != 0))  # a script is one test, unless its last line counts its own
  if [[ $(tail -n 1 "$work/$script.log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
  fi
  add "$script" "$status" "$work/$script.log" "$good" "$bad"
done

[ ! -e "$work/failures" ] || cat "$work/failures"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
