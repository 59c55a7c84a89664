#!/usr/bin/env bash
# Builds the fuzz targets with clang and libFuzzer and runs them (docs/fuzzing.md).
#
#   scripts/fuzz.sh [--seconds S | --runs N] [TARGET...]
#   scripts/fuzz.sh --planted [--seconds S] [TARGET...]
#
# Each target (all of them by default) runs for S seconds (60) or N inputs, on from the corpus that it has in
# build-fuzz/fuzz/TARGET. Printed are inputs, inputs a second, covered edges and reports; the input of a report is kept in
# build-fuzz/reports/TARGET. With --planted the targets search, from their seeds alone, for the bugs that
# tests/fuzz/plants.cmake plants, at most S seconds each. The exit status is 1 where there was a report, or where a planted
# bug was not found. FUZZ_CXX and FUZZ_CC name other compilers than clang++ and clang, JOBS=N limits parallel jobs of the
# build.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-fuzz
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

limit=(-max_total_time=60)
seconds=60
planted=
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:-}; limit=(-max_total_time="$seconds"); shift ;;
    --runs) limit=(-runs="${2:-}"); shift ;;
    --planted) planted=1 ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "fuzz: unknown option $1" >&2; usage >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift || true
done

cxx=${FUZZ_CXX:-clang++}
if ! command -v "$cxx" >/dev/null; then
  echo "fuzz: $cxx is not there: install clang, or name another with FUZZ_CXX and FUZZ_CC" >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "fuzz: failed: $*" >&2
    exit 1
  fi
}
quietly cmake -S "$root" -B "$build" -G Ninja -DLORA_FUZZ=ON -DLORA_CUDA=off -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="${FUZZ_CC:-clang}"
goals=(lora_fuzz)
[ -z "$planted" ] || goals+=(lora_fuzz_plants)
quietly cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${goals[@]}"

known=$(LORA_FUZZ_TARGET=list "$build/bin/lora_fuzz")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets <<<"$known"
for target in "${targets[@]}"; do
  grep -qx "$target" <<<"$known" || { echo "fuzz: there is no target $target; there are" $known >&2; exit 2; }
done

# The short stacks of allocations make inputs a third faster; reports have those of the faults whole.
export ASAN_OPTIONS=malloc_context_size=1:quarantine_size_mb=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
bounds=(-timeout=10 -rss_limit_mb=1024)
number() { sed -n "s/^stat::$1: *//p" "$log" | tail -n 1; }
cpu_seconds() { awk '/^user|^sys/ { split($2, t, /[ms]/); sum += t[1] * 60 + t[2] } END { printf "%.1f", sum }' "$1"; }

seed() { # seed TARGET FOLDER
  mkdir -p "$2"
  LORA_FUZZ_TARGET=$1 LORA_FUZZ_SEEDS=$2 "$build/bin/lora_fuzz"
}

failed=0
if [ -n "$planted" ]; then
  printf '%-28s %12s %10s\n' "planted bug" inputs seconds
  for target in "${targets[@]}"; do
    for name in $(sed -n "s/^lora_plant($target \([a-z0-9_]*\) .*/\1/p" "$root/tests/fuzz/plants.cmake"); do
      work=$(mktemp -d "$build/plant-XXXXXX")
      seed "$target" "$work/corpus"
      status=0
      (cd "$work" && LORA_FUZZ_TARGET=$target "$build/bin/lora_fuzz_${target}_$name" "${bounds[@]}" \
        -max_total_time="$seconds" -seed=1 -print_final_stats=1 corpus) >"$log" 2>&1 || status=$?
      # A report that ends the process before the statistics: the last line that counts inputs.
      inputs=$(number number_of_executed_units)
      [ -n "$inputs" ] || inputs=$(sed -n 's/^#\([0-9]*\).*/\1/p' "$log" | tail -n 1)
      if [ "$status" -ne 0 ] && compgen -G "$work/*-*" >/dev/null; then
        found=$(grep -oE 'took|what\(\): .*|ERROR: [A-Za-z]*: [a-z-]*|runtime error: .*' "$log" | head -n 1 | cut -c 1-70)
        printf '%-28s %12s   found: %s\n' "$target $name" "${inputs:-?}" "$found"
      else
        printf '%-28s %12s   NOT FOUND in %s s\n' "$target $name" "${inputs:-?}" "$seconds"
        failed=1
      fi
      rm -rf "$work"
    done
  done
  exit $failed
fi

total=0
printf '%-14s %12s %10s %10s %8s %8s\n' target inputs "a second" "a cpu s" edges reports
for target in "${targets[@]}"; do
  corpus=$build/fuzz/$target
  reports=$build/reports/$target
  mkdir -p "$reports"
  seed "$target" "$corpus"
  known_inputs=()
  [ ! -d "$root/tests/fuzz/corpus/$target" ] || known_inputs=("$root/tests/fuzz/corpus/$target")
  before=$(find "$reports" -type f | wc -l)
  times=$(mktemp)
  status=0
  begin=$(date +%s.%N)
  { time LORA_FUZZ_TARGET=$target "$build/bin/lora_fuzz" "${bounds[@]}" "${limit[@]}" -print_final_stats=1 \
    -artifact_prefix="$reports/" "$corpus" "${known_inputs[@]}" >"$log" 2>&1; } 2>"$times" || status=$?
  elapsed=$(awk -v b="$begin" -v e="$(date +%s.%N)" 'BEGIN { print e - b }')
  inputs=$(number number_of_executed_units)
  edges=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  found=$(($(find "$reports" -type f | wc -l) - before))
  if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then found=1; fi
  awk -v t="$target" -v i="${inputs:-0}" -v s="$elapsed" -v c="$(cpu_seconds "$times")" -v e="${edges:-0}" -v r="$found" \
    'BEGIN { printf "%-14s %12d %10d %10d %8d %8d\n", t, i, i / s, (c > 0 ? i / c : 0), e, r }'
  rm -f "$times"
  total=$((total + ${inputs:-0}))
  if [ "$found" -gt 0 ]; then
    failed=1
    tail -n 30 "$log" >&2
  fi
done
echo "$total inputs in all"
exit $failed
