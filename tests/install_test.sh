#!/usr/bin/env bash
# Installs a build into a folder of its own, moves that folder, and uses it as a user would: from another directory, and from
# projects that know nothing but the folder.
#
#   tests/install_test.sh BUILD_DIR
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:?usage: tests/install_test.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LORA_HOST_PLUGIN_PATH LORA_HOST_DATA LORA_VERBOSE LORA_LOG LD_LIBRARY_PATH

passed=0
failed=0
check() { # check WHAT COMMAND...: passes when the command ends with 0
  local what=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "ok    $what"
    passed=$((passed + 1))
  else
    echo "FAIL  $what (exit status $?): $*"
    cat "$work/log"
    failed=$((failed + 1))
  fi
}
prints() { # prints TEXT COMMAND...: the command ends with 0 and its output holds TEXT
  local text=$1 output
  shift
  output=$("$@" 2>&1) || { echo "$output"; return 1; }
  [[ $output == *"$text"* ]] || { echo "$output"; echo "expected to find: $text"; return 1; }
}
refuses() { # refuses TEXT COMMAND...: the command fails and its output holds TEXT
  local text=$1 output
  shift
  ! output=$("$@" 2>&1) || { echo "$output"; echo "expected an error"; return 1; }
  [[ $output == *"$text"* ]] || { echo "$output"; echo "expected to find: $text"; return 1; }
}
agree_or_say_why() { # on a GPU: the gradients agree, or the library's text says why there is none to use
  local output
  if output=$("$@" 2>&1); then
    [[ $output == *"the gradients agree"* ]]
  else
    echo "$output"
    [[ $output == "lora_backward: "* ]]
  fi
}
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

check "cmake --install" cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
host=$prefix/bin/lora-host
libraries=$prefix/$(cache CMAKE_INSTALL_LIBDIR)
mkdir "$work/elsewhere"
cd "$work/elsewhere"

check "--version" prints "lora-host" "$host" --version
check "the program uses the installed kernel library" prints "=> $prefix/" ldd "$host"
for plugin in chroma flux sd35 optim samplers; do
  check "plugin $plugin is found" prints "$libraries/lora-host/$plugin.so" "$host" plugins
done

toy=$root/examples/toy_flux
cat >train.yaml <<YAML
name: installed
device: cpu
model: {name_or_path: $toy/flux_toy.safetensors, vae_path: $toy/ae.safetensors, clip_path: $toy/clip_l.safetensors,
  t5_path: $toy/t5xxl.safetensors}
network: {linear: 2}
datasets: [{folder_path: $root/examples/demo/photos, resolution: 64}]
train: {steps: 1, batch_size: 1, dtype: fp32}
YAML

check "the data of a plugin lies beside it" cmp "$root/plugins/z_image/tokenizers/qwen3/merges.txt" \
  "$libraries/lora-host/z_image/tokenizers/qwen3/merges.txt"
tokenizer=$(find "$prefix" -path '*/tokenizers/clip/merges.txt')
check "tokenizer files are installed" test -n "$tokenizer"
mv "$tokenizer" "$tokenizer.away"
check "they are the ones used" refuses "$tokenizer" "$host" train --config train.yaml
mv "$tokenizer.away" "$tokenizer"
rm -rf output
check "one training step" "$host" train --config train.yaml
check "the LoRA file is there" prints "names of flux: 22 of 22 modules" "$host" inspect output/installed/installed.safetensors

# A sanitized library needs programs that are sanitized too.
flags=
if [ "$(cache LORA_SANITIZE)" = ON ]; then flags=-fsanitize=address,undefined; fi
check "a C project finds the kernel library" cmake -S "$root/examples/kernels" -B "$work/kernels" \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$(cache CMAKE_C_COMPILER)" -DCMAKE_C_FLAGS="-Werror $flags"
check "it builds" cmake --build "$work/kernels"
check "its gradients agree with plain loops" prints "the gradients agree" "$work/kernels/lora_backward" cpu
check "on a GPU too, or it says why not" agree_or_say_why "$work/kernels/lora_backward" cuda

check "sdk/template builds against the installed SDK" cmake -DPREFIX="$prefix" -DTEMPLATE="$root/sdk/template" \
  -DWORK="$work/template" -DCXX="$(cache CMAKE_CXX_COMPILER)" -P "$root/tests/sdk_template.cmake"
check "its plugin is found" prints "$libraries/lora-host/sign_sgd.so" "$host" plugins
check "its optimizer trains" "$host" train --config train.yaml --name template --optimizer sign_sgd

# A model plugin of the host needs nothing else either: the SDK has its blocks, and their rules for checkpoint files. The
# host's own one is out of the way, and a small model is made up from a list of its keys.
cp -r "$root/plugins/chroma" "$work/chroma"
mv "$libraries/lora-host/chroma.so" "$work/chroma.so"
keys() {
  local h=128 wide=32 list=
  tensor() { list+="${list:+, }\"$1\": [\"BF16\", [$2]]"; }
  linear() { tensor "$1.weight" "$2, $3"; tensor "$1.bias" "$2"; }
  norms() { tensor "$1.query_norm.scale" 128; tensor "$1.key_norm.scale" 128; }
  linear img_in $h 64; linear txt_in $h 64
  linear distilled_guidance_layer.in_proj $wide 64; linear distilled_guidance_layer.out_proj $h $wide
  linear distilled_guidance_layer.layers.0.in_layer $wide $wide
  linear distilled_guidance_layer.layers.0.out_layer $wide $wide
  tensor distilled_guidance_layer.norms.0.scale $wide
  for side in img txt; do
    linear double_blocks.0.${side}_attn.qkv $((3 * h)) $h; linear double_blocks.0.${side}_attn.proj $h $h
    linear double_blocks.0.${side}_mlp.0 $((4 * h)) $h; linear double_blocks.0.${side}_mlp.2 $h $((4 * h))
    norms double_blocks.0.${side}_attn.norm
  done
  linear single_blocks.0.linear1 $((7 * h)) $h; linear single_blocks.0.linear2 $h $((5 * h))
  norms single_blocks.0.norm
  linear final_layer.linear 64 $h
  echo "{\"tensors\": {$list}}"
}
keys >chroma.json
check "make-checkpoint writes a small model" "$host" make-checkpoint --like chroma.json chroma.safetensors
sed "s|$toy/flux_toy.safetensors|chroma.safetensors|; s| clip_path: [^,]*,||" train.yaml >chroma.yaml
for compiler in "$(cache CMAKE_CXX_COMPILER)" clang++; do
  command -v "$compiler" >/dev/null || continue
  build_folder=$work/chroma-$(basename "$compiler")
  check "a model plugin finds the installed SDK ($compiler)" cmake -S "$work/chroma" -B "$build_folder" \
    -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-O0 -Wall -Wextra -Werror"
  check "it builds" cmake --build "$build_folder"
  export LORA_HOST_PLUGIN_PATH=$build_folder/lib/lora-host
  check "it is found" prints "$build_folder/lib/lora-host/chroma.so" "$host" plugins
  rm -rf output
  check "it trains" "$host" train --config chroma.yaml --name chroma
  check "its LoRA loads" "$host" verify output/chroma/chroma.safetensors --model chroma.safetensors --for comfyui,kohya
done
unset LORA_HOST_PLUGIN_PATH

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
