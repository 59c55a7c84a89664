#!/usr/bin/env bash
# Makes the packages of a build and uses them as users would: what the Debian packages hold, depend on and conflict with, the
# demo's first steps from the unpacked archive, with nothing of the build or the distribution but the C and C++ libraries.
#
#   tests/package_test.sh BUILD_DIR [ROOT]
#
# ROOT is a folder with a bare Debian 12 (debootstrap --variant=minbase bookworm ROOT); as root, the packages are installed
# there with apt and the demo is trained in it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:?usage: tests/package_test.sh BUILD_DIR [ROOT]}" && pwd)
bare=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LORA_HOST_PLUGIN_PATH LORA_HOST_DATA LORA_VERBOSE LORA_LOG LD_LIBRARY_PATH
source "$root/tests/support/checks.sh"

if grep -q '^LORA_SANITIZE:BOOL=ON' "$build/CMakeCache.txt"; then
  echo "a build with sanitizers makes no packages"
  exit 0
fi
for tool in dpkg-shlibdeps file zstd; do
  command -v "$tool" >/dev/null || { echo "package_test: $tool is not there: run scripts/setup.sh"; exit 1; }
done

cd "$build"
check "cpack" cpack -D CPACK_LORA_NATIVE=ON -B "$work/packages"
if grep -q '^LORA_CPU_ARCH:STRING=native' CMakeCache.txt; then
  check "which does not pack this processor's instructions unasked" refuses "SIGILL on others" cpack -G TZST -B "$work/refused"
fi
packages=$work/packages
deb() { find "$packages" -maxdepth 1 -name "$1_*.deb"; }

check "it depends on the library of logs by name" prints "libspdlog" dpkg-deb -f "$(deb lora-host)" Depends
depends_not() { ! dpkg-deb -f "$(deb lora-host)" Depends | grep -E "$1"; }
check "and on nothing of CUDA, FFmpeg, MPI, compilers or tests" depends_not 'cuda|cublas|cudnn|libav|libsw|mpi|g\+\+|gtest|-dev'
check "its module for MPI is a package" prints "lora-host (= " dpkg-deb -f "$(deb lora-host-mpi)" Depends
if [ -f lib/lora-host/data/video.so ]; then
  check "that for videos too" prints "lora-host (= " dpkg-deb -f "$(deb lora-host-video)" Depends
  check "which names FFmpeg's libraries" prints "libavformat" dpkg-deb -f "$(deb lora-host-video)" Depends
  check "and holds the module" prints "./usr/lib/lora-host/data/video.so" dpkg-deb -c "$(deb lora-host-video)"
  not_in_host() { ! dpkg-deb -c "$(deb lora-host)" | grep -F data/video.so; }
  check "alone" not_in_host
fi
if [ -f lib/lora-kernels/cuda.so ]; then
  check "that for GPUs too" prints "lora-host (= " dpkg-deb -f "$(deb lora-host-cuda)" Depends
  check "which names CUDA's libraries" prints "libcublas-" dpkg-deb -f "$(deb lora-host-cuda)" Depends
  check "and holds the module" prints "./usr/lib/lora-kernels/cuda.so" dpkg-deb -c "$(deb lora-host-cuda)"
fi
for file in bin/lora-host bin/golden_runner lib/lora-host/flux.so lib/lora-host/optim.so include/lora_kernels.h \
  include/lora_host/lora_host.hpp share/lora-host/tokenizers/t5/spiece.model share/doc/lora-host/copyright \
  share/man/man1/lora-host.1 share/bash-completion/completions/lora-host; do
  check "it holds $file" prints "./usr/$file" dpkg-deb -c "$(deb lora-host)"
done
if command -v apt-get >/dev/null; then
  check "apt takes them" prints "Inst lora-host " apt-get --simulate install "$(deb lora-host)" "$(deb lora-host-examples)"
fi

# The demo, from a place of its own, by a program that knows nothing of the caller.
two_steps() { # two_steps PREFIX: in a new folder
  local folder
  folder=$(mktemp -d "$work/run-XXXXXX")
  (cd "$1/share/lora-host" && env -i HOME="$folder" "$1/bin/lora-host" train --config examples/demo/train.yaml --steps 2 \
    --sample-every 0 --batch-size 1 --out "$folder")
  test -s "$folder/demo/demo.safetensors"
}
mkdir "$work/tree"
for name in lora-host lora-host-examples; do dpkg-deb -x "$(deb "$name")" "$work/tree"; done
check "two steps of the demo from what the packages hold" two_steps "$work/tree/usr"

mkdir "$work/unpacked"
tar -C "$work/unpacked" --zstd -xf "$(find "$packages" -maxdepth 1 -name '*.tar.zst')"
mv "$work/unpacked"/* "$work/another place"
archive="$work/another place"
foreign() { # libraries that come from elsewhere and are not those that every machine has
  ldd "$archive/bin/lora-host" "$archive"/lib/lora-host/*.so | sed -n "s/.*=> \(\/.*\) (0x.*/\1/p" | sort -u |
    grep -vF "$archive/" | grep -vE '/(libc|libm|libgcc_s|libstdc\+\+|libdl|librt|libpthread)\.so'
}
no_foreign() { ! foreign; }
check "the archive has the libraries that it needs" no_foreign
check "with their notices" test -s "$archive/share/doc/lora-host/libraries/libopenblas0-pthread"
check "two steps of the demo from the archive" two_steps "$archive"
ln -s "$archive/bin/lora-host" "$work/link"
check "through a link too" prints "$archive/lib/lora-host/flux.so" "$work/link" plugins

if [ -n "$bare" ]; then
  mkdir -p "$bare/packages"
  cp "$packages"/*.deb "$bare/packages"
  mountpoint -q "$bare/proc" || { mount -t proc proc "$bare/proc"; trap 'umount "$bare/proc"; rm -rf "$work"' EXIT; }
  check "apt installs them in a bare Debian" chroot "$bare" sh -c \
    'apt-get -q update && apt-get -q -y install --no-install-recommends /packages/lora-host_*.deb /packages/lora-host-examples_*.deb'
  check "and the demo is trained there" chroot "$bare" sh -c \
    'cd /usr/share/lora-host && lora-host train --config examples/demo/train.yaml --steps 20 --out /tmp/out'
  check "its LoRA is there" test -s "$bare/tmp/out/demo/demo.safetensors"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
