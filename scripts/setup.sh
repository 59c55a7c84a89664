#!/usr/bin/env bash
# Installs what lora-host is built from, on Debian 12 and Ubuntu 24.04. Only missing packages are installed. The CUDA toolkit
# and cuDNN, which only the CUDA backend needs, come from NVIDIA and are left to the user: README.md says which.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config binutils dpkg-dev file zstd
  libboost-dev libboost-filesystem-dev libyaml-cpp-dev libtomlplusplus-dev libfmt-dev libcli11-dev nlohmann-json3-dev libspdlog-dev
  libopenblas-dev libdnnl-dev libeigen3-dev libsentencepiece-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev libstb-dev libtiff-dev libheif-dev libavformat-dev libavcodec-dev libswscale-dev libswresample-dev libssl-dev libicu-dev libcpp-httplib-dev
  libgtest-dev libgmock-dev libopenmpi-dev openmpi-bin
)

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian or Ubuntu. Install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed* ]] || missing+=("$package")  # once for each architecture
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: needs root. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >>"$log" 2>&1; }
apt update || true  # a package source that is out of order need not be one of those needed here
if ! apt install --no-install-recommends "${missing[@]}"; then
  cat "$log" >&2
  echo "setup: apt-get failed, see above" >&2
  exit 1
fi
echo "setup: done"
