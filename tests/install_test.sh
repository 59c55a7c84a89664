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

source "$root/tests/support/checks.sh"
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
for plugin in chroma flux sd35 optim samplers schedules; do
  check "plugin $plugin is found" prints "$libraries/lora-host/$plugin.so" "$host" plugins
done

if [ -f "$build/lib/lora-host/data/video.so" ]; then
  check "the module for videos is found" prints "videos: are read" "$host" --version
  mv "$libraries/lora-host/data" "$libraries/lora-host/data.away"
  check "where it is not installed" prints "Install the package lora-host-video" "$host" --version
  mv "$libraries/lora-host/data.away" "$libraries/lora-host/data"
fi

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

tokenizer=$(find "$prefix" -path '*/tokenizers/clip/merges.txt')
check "tokenizer files are installed" test -n "$tokenizer"
check "with the vocabulary that plugins share" cmp "$root/share/tokenizers/qwen3/merges.txt" \
  "$(dirname "$tokenizer")/../qwen3/merges.txt"
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
# Components are backends: those that are there are found, others are told, and stop only who needs them.
with_components() { # the words behind LoraKernels in find_package
  mkdir -p "$work/components"
  cat >"$work/components/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(components NONE)
find_package(LoraKernels 0.2 $1)
message(STATUS "found \${LoraKernels_FOUND}, cpu \${LoraKernels_cpu_FOUND}, cuda \${LoraKernels_cuda_FOUND}")
CMAKE
  rm -rf "$work/components/build"
  cmake -S "$work/components" -B "$work/components/build" -DCMAKE_PREFIX_PATH="$prefix" 2>&1
}
cuda=FALSE
if [ -e "$libraries/lora-kernels/cuda.so" ]; then cuda=TRUE; fi
check "the component cpu" prints "found 1, cpu TRUE, cuda $cuda" with_components "REQUIRED COMPONENTS cpu"
check "an optional component" prints "found 1, cpu TRUE, cuda $cuda" with_components "OPTIONAL_COMPONENTS cuda vulkan"
check "a component that there is not" refuses "there is no component vulkan" \
  with_components "REQUIRED COMPONENTS vulkan"
check "not required, it is not found" prints "found 0" with_components "QUIET COMPONENTS vulkan"
if [ "$cuda" = TRUE ]; then
  check "the component cuda" prints "found 1, " with_components "REQUIRED COMPONENTS cpu cuda"
  mv "$libraries/lora-kernels/cuda.so" "$libraries/lora-kernels/cuda.so.away"
  check "where it is not installed" refuses "the backend cuda is not installed" with_components "REQUIRED COMPONENTS cuda"
  mv "$libraries/lora-kernels/cuda.so.away" "$libraries/lora-kernels/cuda.so"
else
  check "where it is not installed" refuses "the backend cuda is not installed" with_components "REQUIRED COMPONENTS cuda"
fi
if command -v pkg-config >/dev/null; then
  flags_of() { PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config --cflags --libs lora_kernels; }
  check "pkg-config finds it where the tree was moved to" prints "-L$libraries" flags_of
  # shellcheck disable=SC2046 # words of a command line
  check "a program is built by it" "$(cache CMAKE_C_COMPILER)" -std=c99 $flags "$root/examples/kernels/lora_backward.c" \
    $(flags_of) "-Wl,-rpath,$libraries" -o "$work/by_pkg_config"
  check "and runs" prints "the gradients agree" "$work/by_pkg_config" cpu
fi
check "on a GPU too, or it says why not" agree_or_say_why "$work/kernels/lora_backward" cuda

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
