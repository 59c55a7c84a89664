#!/usr/bin/env bash
# Everything that needs a GPU, in one call: builds, runs the tests on the CUDA backend, the golden cases in three
# precisions, compute-sanitizer on the operations, and the benches. Writes a log of each part to OUT_DIR.
#
#   scripts/gpu_check.sh OUT_DIR [PART...]
#
# PARTs: build tests golden sanitizer install kernels bench demo; all of them unless named. Environment:
#   BUILD            build directory (build-gpu)
#   CMAKE_ARGS       further arguments for cmake, such as -DLORA_CUDNN_ROOT=...
#   LORA_GOLDEN      folder with further golden cases
#   LORA_PEER_MICRO  a program that times the same LoRA calls elsewhere (a .py is run by python3); it runs after the kernels
#                    part, on the same machine, into a log of its own
#   LORA_KEY_LISTS   folder with key lists of published checkpoints; the full-size benches need it
#   LORA_BENCH_MODELS  the key lists to bench, without .json
# The last line is "N passed, N failed"; the exit status is 1 if anything failed.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
parts=" ${*:-build tests golden sanitizer install kernels bench demo} "
build=${BUILD:-$root/build-gpu}
golden=${LORA_GOLDEN:-$root/../shared/golden}
lists=${LORA_KEY_LISTS:-$root/../shared/data/headers}
passed=0
failed=0

wanted() { [[ $parts == *" $1 "* ]]; }
# part NAME COMMAND...: counts a command as one test, its output goes to OUT_DIR/NAME.log.
part() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "$name: ok, $((SECONDS - start)) s"
  else
    failed=$((failed + 1))
    echo "$name: FAILED ($((SECONDS - start)) s), see $out/$name.log"
    grep -E 'FAILED|FAIL$|error|ERROR' "$out/$name.log" | head -n "${SHOW:-20}"
  fi
  tail -n 2 "$out/$name.log" | sed 's/^/  /'
}

if wanted build; then
  configure() { cmake -S "$root" -B "$build" -G Ninja -DLORA_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=native ${CMAKE_ARGS:-}; }
  part configure configure
  part build cmake --build "$build"
  [ $failed -eq 0 ] || { echo "$passed passed, $failed failed"; exit 1; }
fi

if wanted tests; then
  # Most of the time a test waits for the host or for another process, so several share the GPU; shards are small, so that
  # all end together.
  shards() {
    local logs status=0
    logs=$(mktemp -d)
    seq 0 39 | xargs -P 8 -I{} env GTEST_TOTAL_SHARDS=40 GTEST_SHARD_INDEX={} OMP_NUM_THREADS=2 \
      sh -c '"$0" --device cuda >"$1" 2>&1' "$build/bin/lora_tests" "$logs/{}" || status=1
    cat "$logs"/*
    rm -rf "$logs"
    return $status
  }
  part tests shards
fi
if wanted golden; then
  cases=("$root"/tests/data/golden/*/)
  for case in "$golden"/*/; do  # those of a model; the others are for unit tests
    grep -qs '"plugin"' "$case/case.json" && cases+=("$case")
  done
  for case in "${!cases[@]}"; do [ -f "${cases[case]}/case.json" ] || unset "cases[case]"; done
  for dtype in float32 bfloat16 float16; do
    part "golden_$dtype" "$build/bin/golden_runner" --device cuda --dtype $dtype "${cases[@]}"
  done
fi
if wanted sanitizer; then
  # A test asks for more memory than there is: that call's failure is no error of a kernel.
  part sanitizer compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
    "$build/bin/lora_tests" --device cuda --gtest_filter='Ops/*:*Kernel*:Flight*'
fi
if wanted install; then
  part install bash "$root/tests/install_test.sh" "$build"  # the C example on the GPU, against the installed library
fi
if wanted kernels; then
  part kernels "$build/bin/lora_kernels_bench" cuda
  case ${LORA_PEER_MICRO:-} in
    '') ;;
    *.py) part kernels_peer python3 "$LORA_PEER_MICRO" ;;
    *) part kernels_peer "$LORA_PEER_MICRO" ;;
  esac
fi
if wanted bench; then
  for list in ${LORA_BENCH_MODELS:-flux1-dev sd3.5_large sd3.5_medium sd_xl_base_1.0}; do
    [ -f "$lists/$list.json" ] || continue
    text=()
    case $list in sd3.5_*) text=(--text-length 333) ;; esac  # both CLIPs and T5 one after the other
    for recompute in "" --recompute; do
      part "bench_$list$recompute" "$build/bin/lora-host" bench --like "$lists/$list.json" --resolution 1024 \
        --batch-size 1 --rank 16 "${text[@]}" --times $recompute
    done
  done
fi
if wanted demo; then
  part demo env BUILD="$build" "$root/scripts/demo.sh" --device cuda
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
