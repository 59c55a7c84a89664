#!/usr/bin/env bash
# Formats the sources with clang-format, or with --check only names the files that are not formatted.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mode=${1:-}
case $mode in
  '' | --check) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
if ! command -v clang-format >/dev/null; then
  echo "format: clang-format is not installed (apt-get install clang-format)" >&2
  exit 1
fi

wrong=0
while IFS= read -r -d '' file; do
  if [ -z "$mode" ]; then
    clang-format -i "$file"
  elif ! clang-format "$file" | cmp -s - "$file"; then
    echo "not formatted: ${file#"$root"/}"
    wrong=1
  fi
done < <(find "$root/host" "$root/kernels" "$root/sdk" "$root/plugins" "$root/tests" \
  \( -name '*.c' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -type f -print0)
if [ $wrong -ne 0 ]; then
  echo "format: run scripts/format.sh" >&2
fi
exit $wrong
