#!/usr/bin/env bash
# The reference pages that are made of the sources, docs/ops.md and docs/roles.md, are what the sources say.
# LORA_UPDATE_DOCS=1 writes them anew.
#
#   tests/docs_test.sh BUILD_DIR
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:?usage: tests/docs_test.sh BUILD_DIR}" && pwd)
failed=0
for page in ops roles; do
  made=$build/sdk/docs/$page.md
  if [ -n "${LORA_UPDATE_DOCS:-}" ]; then cp "$made" "$root/docs/$page.md"; fi
  if ! diff -u "$root/docs/$page.md" "$made"; then
    echo "docs/$page.md is not what the sources say. Run LORA_UPDATE_DOCS=1 tests/docs_test.sh $build"
    failed=$((failed + 1))
  fi
done
echo "$((2 - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
