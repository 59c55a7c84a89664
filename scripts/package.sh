#!/usr/bin/env bash
# Makes packages that need no compiler where they are installed: Debian packages, and an archive that runs from where it is
# unpacked (docs/install.md).
#
#   scripts/package.sh [--cuda auto|on|off] [OUTPUT_DIR]
#
# OUTPUT_DIR is `packages` unless given. The build is build-package, for any processor of this architecture. JOBS=N limits
# parallel jobs, LORA_PACKAGE_MAINTAINER="Name <address>" says who made them.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cuda=auto
output=$root/packages
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=${2:-}; shift ;;
    --cuda=*) cuda=${1#*=} ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "package: unknown option $1" >&2; exit 2 ;;
    *) output=$1 ;;
  esac
  shift || true
done

maintainer=()
[ -z "${LORA_PACKAGE_MAINTAINER:-}" ] || maintainer=("-DLORA_PACKAGE_MAINTAINER=$LORA_PACKAGE_MAINTAINER")
cmake -S "$root" -B "$root/build-package" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLORA_CUDA="$cuda" -DLORA_CPU_ARCH= "${maintainer[@]}"
cmake --build "$root/build-package" --parallel "${JOBS:-$(nproc)}" --target packaged
mkdir -p "$output"
output=$(cd "$output" && pwd)
(cd "$root/build-package" && cpack -B "$output")
rm -r "$output/_CPack_Packages"
ls -l "$output"
