#!/usr/bin/env bash
# The reader of safetensors files beside Python's, on files that are mutated (fuzz/safetensors_oracle.py). Without Python's
# library there is nothing to compare with. PYTHON names another interpreter than python3.
set -euo pipefail
build=${1:?usage: safetensors_oracle_test.sh BUILD_DIR}
python=${PYTHON:-python3}
if ! "$python" -c 'import safetensors; safetensors.deserialize' 2>/dev/null; then
  echo "safetensors_oracle: $python has no library safetensors: nothing to compare with"
  echo "0 passed, 0 failed"
  exit 0
fi
# One test, however many files.
"$python" "$(dirname "${BASH_SOURCE[0]}")/fuzz/safetensors_oracle.py" "$build/bin/read_safetensors"
echo "1 passed, 0 failed"
