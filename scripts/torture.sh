#!/usr/bin/env bash
# The crash test in full: a tiny run meets a fault in any of its file-system calls or allocations, is resumed, and must
# leave the very files of an undisturbed run (docs/reliability.md).
#
#   scripts/torture.sh [--faults N] [--seed S] [--jobs J] [--minutes M] [BUILD_DIR]
#
# Builds what is missing into BUILD_DIR (`build`). N faults (10000) are drawn with seed S (1) from all that the runs of all
# optimizers can meet, in J jobs (1), for at most M minutes. Says what was tried, of which kind, and every fault that did
# not end as it must; the exit status is 1 if there was one. TORTURE_FOLDER: where the runs lie, /dev/shm where it is there.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --faults | --seed | --jobs | --minutes) options+=("$1" "${2:-}"); shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "torture: unknown option $1" >&2; exit 2 ;;
    *) build=$1 ;;
  esac
  shift || true
done
if [ -f "$build/build.ninja" ]; then
  cmake --build "$build" --target torture >/dev/null
else
  "$root/scripts/build.sh" "$build"
fi
folder=${TORTURE_FOLDER:-/dev/shm}
[ -w "$folder" ] && export TMPDIR=$folder
exec "$build/bin/torture" "${options[@]}"
