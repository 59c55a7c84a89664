#!/usr/bin/env bash
# Two types of one name in one namespace of a program are one to the linker: of std::vector<Piece> it keeps the code for either,
# and the other's run with it. Compilers do not see that, so the sources are read here.
#
#   tests/types_test.sh BUILD_DIR
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tests/support/checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "namespace::Name file:line" of each type that is defined outside unnamed namespaces and other types.
types() { # types FILE...
  awk '
    FNR == 1 { depth = 0 }
    /^(inline )?namespace [A-Za-z_:]* *\{$/ { sub(/^inline /, ""); scope[++depth] = $2 == "{" ? "(unnamed)" : $2; next }
    /^\}  \/\/ namespace/ { --depth; next }
    /^(struct|class|union|enum|enum class) / && !/;$/ {
      sub(/^(struct|class|union|enum class|enum) +/, "")
      while (sub(/^(LK_API|LH_API|alignas\([^)]*\)) +/, "")) {}
      if ($0 !~ /^[A-Za-z_][A-Za-z_0-9]*( final)? *(:[^:]|\{)/) next  # of a class, a specialization, or no definition
      sub(/[ :{].*/, "")
      path = ""
      for (i = 1; i <= depth; ++i) path = path scope[i] "::"
      if (path !~ /unnamed/) print path $0, FILENAME ":" FNR
    }' "$@"
}
unique() { # unique FOLDER...: of the sources below
  local found twice
  found=$(cd "$root" && find "$@" -name '*.h' -o -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort |
    while IFS= read -r file; do types "$file"; done)
  [ "$(wc -l <<<"$found")" -gt 20 ] || { echo "only these types were found below $*: $found"; return 1; }
  twice=$(cut -d' ' -f1 <<<"$found" | sort | uniq -d)
  [ -z "$twice" ] || { grep -wF "$twice" <<<"$found"; return 1; }
}

check "of the host, its tests and the SDK" unique host sdk/include tests
check "of the kernel library" unique kernels/*.h kernels/*.cpp kernels/include kernels/cpu
check "of the CUDA backend" unique kernels/*.h kernels/include kernels/cuda

mkdir "$work/a"
printf 'namespace lh {\n\nstruct Same {\n  int a;\n};\n\nnamespace {\nstruct Other {\n};\n}  // namespace\n}  // namespace lh\n' >"$work/a/one.cpp"
for n in $(seq 1 20); do printf 'struct T%d {\n};\n' "$n"; done >"$work/a/many.h"
check "one definition is none too many" unique "$work/a"
cp "$work/a/one.cpp" "$work/a/two.cpp"
twice() { ! unique "$work/a" >"$work/said" && grep -q '^lh::Same .*/two.cpp:3$' "$work/said" && ! grep -q Other "$work/said"; }
check "two are found, and those in unnamed namespaces are not meant" twice

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
