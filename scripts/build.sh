#!/usr/bin/env bash
# Builds lora-host with Ninja.
#
#   scripts/build.sh [--cuda auto|on|off] [--arch "90 120"] [--sanitize] [--quick] [BUILD_DIR]
#
# BUILD_DIR is `build`, or `build-sanitize` with --sanitize, unless given. JOBS=N limits parallel jobs. --arch names the
# GPUs to compile for (compute capabilities; `native` for the one in this machine; `one` for LORA_CUDA_ARCH, or else the
# one in this machine, or else 9.0); by default those that BUILD_DIR was built for before, at first all from 7.5 on. --quick
# is for tests: less is optimised, device code not at all where there is no GPU (cmake/QuickBuild.cmake), and BUILD_DIR stays
# so. Prints which backends were built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

cuda=auto
arch=
sanitize=OFF
quick=OFF
build=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=${2:-}; shift ;;
    --cuda=*) cuda=${1#*=} ;;
    --arch) arch=${2:-}; shift ;;
    --arch=*) arch=${1#*=} ;;
    --sanitize) sanitize=ON ;;
    --quick) quick=ON ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "build: unknown option $1" >&2; usage >&2; exit 2 ;;
    *)
      [ -z "$build" ] || { echo "build: one build directory, found $build and $1" >&2; exit 2; }
      build=$1 ;;
  esac
  shift || true
done
case $cuda in
  auto | on | off) ;;
  *) echo "build: --cuda must be auto, on or off, found '$cuda'" >&2; exit 2 ;;
esac
gpu=OFF
! nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || gpu=ON
if [ "$arch" = one ]; then
  if [ $gpu = ON ]; then arch=native; else arch=90; fi
  arch=${LORA_CUDA_ARCH:-$arch}
fi
if [ -z "$build" ]; then
  build=$root/build
  [ $sanitize = OFF ] || build=$root/build-sanitize
fi

! grep -qs '^LORA_QUICK_BUILD:BOOL=ON' "$build/CMakeCache.txt" || quick=ON
quick_device=OFF
[ $quick$gpu != ONOFF ] || quick_device=ON

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "build: failed: $*" >&2
    exit 1
  fi
}

# What ccache has of this project in one folder it has in another.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
quietly cmake -S "$root" -B "$build" -G Ninja -DLORA_CUDA="$cuda" -DLORA_SANITIZE=$sanitize -DLORA_QUICK_BUILD=$quick \
  -DLORA_QUICK_DEVICE=$quick_device ${arch:+-DCMAKE_CUDA_ARCHITECTURES="${arch// /;}"}
grep -E '^-- lora-host:' "$log" | sed 's/^-- //' || true
quietly cmake --build "$build" --parallel "${JOBS:-$(nproc)}"
echo "build: programs in $build/bin, libraries and plugins in $build/lib"
