#!/usr/bin/env bash
# Models as strangers ship them: the template and the host's own plugins are built from copies, with nothing but an installed
# tree, by clang++ where there is one, and have to equal their golden cases. The template and four of them are built by the
# host's compiler too, which has compiled the others once for the host: each has to train, go on after it was killed with the
# same bytes, sample, and give a LoRA file that programs load.
#
#   tests/template_test.sh BUILD_DIR
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:?usage: tests/template_test.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LORA_HOST_PLUGIN_PATH LORA_HOST_DATA LORA_VERBOSE LORA_LOG LD_LIBRARY_PATH
source "$root/tests/support/checks.sh"
source "$root/tests/support/key_lists.sh"
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# All that is used of the source tree, in folders of its own.
cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
prefix=$work/prefix
host=$prefix/bin/lora-host
plugins=$prefix/$(cache CMAKE_INSTALL_LIBDIR)/lora-host
mkdir "$work/sources" "$work/golden"
whole=(chroma flux2 qwen_image z_image)
others=(anima auraflow ernie_image flux3 hidream hidream_o1 hunyuan_image hunyuan_video hunyuan_video1 ideogram4 krea2 ltx2 lumina2 omnigen2 qwen_image21 sd15 wan)
cp -r "$prefix/share/lora-host/template" "$work/sources"
for plugin in "${whole[@]}" "${others[@]}"; do
  cp -r "$root/plugins/$plugin" "$work/sources"
  rm -rf "$plugins/$plugin"{,.so}  # the host's own
done
cp -r "$root/tests/data/golden/"{anima_tiny,text_anima,auraflow_tiny,text_auraflow,chroma_tiny,ernie_image_tiny,text_ernie_image,flux2_klein_tiny,text_flux2_dev,ideogram4_tiny,text_ideogram4,krea2_tiny,krea2_edit_apart_tiny,text_krea2,text_krea2_edit,flux3_edit_tiny,text_flux3,ltx2_tiny,ltx23_sound_i2v_tiny,text_ltx2,text_ltx23_sound,vae_ltx2_decode,lumina2_tiny,text_lumina2,omnigen2_tiny,omnigen2_edit_tiny,text_omnigen2,hidream_tiny,text_hidream,hidream_o1_tiny,hunyuan_image_tiny,text_hunyuan_image,vae_hunyuan_image_decode,hunyuan_video_tiny,vae_hunyuan_video_decode,hunyuan_video1_tiny,text_hunyuan_video1,vae_hunyuan_video1_decode,qwen_image_tiny,qwen_image21_tiny,vae_qwen_image21_decode,sd15_tiny,text_sd2,wan_tiny,wan_video_tiny,wan_i2v_tiny,vae_wan_decode,vae_wan22_decode,text_wan,z_image_tiny} "$work/sources/template/tiny_dit/golden/"*/ "$work/golden"
cp "$root/examples/toy_flux/"{ae,t5xxl}.safetensors "$work"
cd "$work"

check "documentation for authors is installed" test -s "$prefix/share/doc/lora-host/plugin-guide.md" \
  -a -s "$prefix/share/doc/lora-host/roles.md" -a -s "$prefix/share/doc/lora-host/ops.md"

config() { # config NAME MODEL...: NAME.yaml
  cat >"$1.yaml" <<YAML
name: $1
device: cpu
model: {name_or_path: $1.safetensors${2:+, $2}}
network: {linear: 4, linear_alpha: 4}
datasets: [{folder_path: images, resolution: 64}]
train: {steps: 6, batch_size: 2, lr: 1e-3, dtype: fp32}
save: {save_every: 3, dtype: float32}
sample: {sample_steps: 2, width: 64, height: 48, prompts: [a green dog]}
YAML
}
killed() { # killed NAME: a run that is killed behind step 3, while it makes a sample that takes long
  sed 's/sample_steps: 2, width: 64, height: 48/sample_every: 4, sample_steps: 1000, width: 512, height: 512/' "$1.yaml" \
    >"$1-killed.yaml"
  "$host" train --config "$1-killed.yaml" --out killed >log.killed 2>&1 &
  local run=$!
  for _ in $(seq 1200); do
    if [ -e "killed/$1/state/000000003.safetensors" ]; then break; fi
    kill -0 $run 2>/dev/null || break
    sleep 0.05
  done
  kill -9 $run 2>/dev/null
  local status=0
  wait $run 2>/dev/null || status=$?
  [ $status -eq 137 ] && [ -e "killed/$1/state/000000003.safetensors" ] && [ ! -e "killed/$1/$1.safetensors" ] || { cat log.killed; echo "exit status $status"; return 1; }
}
whole() { # whole NAME PROGRAM: a model at work
  rm -rf whole killed cache
  check "$1 trains" "$host" train --config "$1.yaml" --out whole
  check "$1 is killed behind step 3" killed "$1"
  check "$1 goes on" "$host" train --config "$1.yaml" --out killed --resume
  check "$1 gives the same bytes" cmp "whole/$1/$1.safetensors" "killed/$1/$1.safetensors"
  check "$1 samples" "$host" sample --config "$1.yaml" --lora "whole/$1/$1.safetensors" --out "$1.png" --force
  check "$1 samples an image" prints PNG head -c 4 "$1.png"
  check "$1 verifies for $2" "$host" verify "whole/$1/$1.safetensors" --config "$1.yaml" --for "$2"
}

sampled() { # the template's sampler and schedule, with options and with mistakes in them
  sed 's/sample_steps: 2,/sample_steps: 5, sampler: ab2, scheduler: power, sampler_params: {weight: 0.5},/;
    s/prompts: /scheduler_params: {exponent: 2}, &/' tiny_dit.yaml >ab2.yaml
  check "the template's sampler and schedule draw" "$host" sample --config ab2.yaml --out ab2.png --force
  check "... an image" prints PNG head -c 4 ab2.png
  sed 's/weight: 0.5/weight: 2/' ab2.yaml >heavy.yaml
  sed 's/exponent: 2/exponet: 2/' ab2.yaml >unknown.yaml
  check "... within their ranges" refuses "weight: must be 0 to 1, found 2" "$host" sample --config heavy.yaml --out no.png
  check "... and by their names" refuses "Did you mean exponent?" "$host" sample --config unknown.yaml --out no.png
}

config tiny_dit
config chroma "vae_path: ae.safetensors, t5_path: t5xxl.safetensors, max_sequence_length: 32"
config qwen_image
config z_image "vae_path: ae.safetensors"
config flux2 "vae_path: flux2_ae.safetensors, variant: klein"
chroma_keys >chroma.json
qwen_image_keys >qwen_image.json
z_image_keys >z_image.json
flux2_keys >flux2.json
golden_keys "$root/tests/data/golden/vae_flux2_encode" >flux2_ae.json
cp sources/template/tiny_dit/keys.json tiny_dit.json
for model in tiny_dit chroma flux2 flux2_ae qwen_image z_image; do
  check "make-checkpoint $model" "$host" make-checkpoint --like $model.json $model.safetensors
done

golden_of() { # golden_of PLUGIN...: their cases
  local case
  for case in golden/*/; do [[ " $* " != *" $(sed -n 's/^ *"plugin": "\(.*\)",*$/\1/p' "$case/case.json") "* ]] || echo "$case"; done
}
compilers=("$(cache CMAKE_CXX_COMPILER)")
if command -v clang++ >/dev/null; then compilers+=(clang++); else echo "skip  clang++ is not installed"; fi
for compiler in "${compilers[@]}"; do
  projects=("${whole[@]}")
  [ "$compiler" != "${compilers[-1]}" ] || projects+=("${others[@]}")
  folder=$work/$(basename "$compiler")
  unset LORA_HOST_PLUGIN_PATH
  for project in template "${projects[@]}"; do
    # The sources of the host's own are compiled one by one in its build; here a project's are compiled as one.
    if [ $project = template ]; then unity=OFF; else unity=ON; fi
    check "$project finds the installed SDK ($compiler)" cmake -S "sources/$project" -B "$folder/$project" \
      -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" \
      -DCMAKE_UNITY_BUILD=$unity -DCMAKE_CXX_FLAGS_RELEASE=-O0  # their -O3 would come behind -O0 in the flags before
    check "$project builds" cmake --build "$folder/$project" --parallel 2
    export LORA_HOST_PLUGIN_PATH=${LORA_HOST_PLUGIN_PATH:+$LORA_HOST_PLUGIN_PATH:}$folder/$project/lib/lora-host
  done
  check "they are found" prints "$folder/z_image/lib/lora-host/z_image.so" "$host" plugins
  check "they equal their golden cases" "$prefix/bin/golden_runner" $(golden_of tiny_dit "${projects[@]}")
  if [ ! -d images ]; then  # random weights draw well enough
    check "images to train on" "$host" sample --config tiny_dit.yaml --out images \
      --prompt "a red circle" --prompt "a blue square, on a photo" --prompt "two cats and the dog in an image"
    echo "a red circle" >images/sample_0.txt
    echo "a blue square, on a photo" >images/sample_1.txt
    echo "two cats and the dog in an image" >images/sample_2.txt
  fi
  whole tiny_dit my_program
  sampled
  whole chroma comfyui
  whole qwen_image comfyui,diffusers
  whole z_image comfyui
  whole flux2 comfyui,diffusers
done

# What else the template says that it does.
sed 's/dtype: fp32}/dtype: fp32, train_text_encoder: true}/' tiny_dit.yaml >text.yaml
check "its text encoder is trained too" "$host" train --config text.yaml --out text
check "... and its LoRA loads" "$host" verify text/tiny_dit/tiny_dit.safetensors --config tiny_dit.yaml --for my_program
check "its setting is checked" refuses "must be 0 to 4, found 9" "$host" train --config tiny_dit.yaml --text-strength 9
strong() { cp -r whole strong && rm -rf strong/tiny_dit && "$host" train --config tiny_dit.yaml --out strong "$@"; }
rm -rf whole && check "a run with it unset" "$host" train --config tiny_dit.yaml --out whole
check "texts are encoded again where it is set" prints "encoding" strong --text-strength 2
check "the optimizer trains" "$host" train --config tiny_dit.yaml --out sign --optimizer sign_sgd
check "the one with a reduction, too" "$host" train --config tiny_dit.yaml --out normalized --optimizer normalized_sgd
sed 's/linear: 4, linear_alpha: 4/type: input_scale, network_kwargs: {strength: 2}/; s/steps: 6/steps: 60/; s/lr: 1e-3/lr: 1e-2/;
  s/save_every: 3/save_every: 20/' tiny_dit.yaml >scale.yaml
check "the adapter trains" "$host" train --config scale.yaml --out scale
falls() { awk -F, 'NR > 1 { if (NR <= 21) first += $2; if (NR > 41) last += $2 } END { exit !(NR == 61 && last < first) }' "$1"; }
check "its loss falls" falls scale/tiny_dit/metrics.csv
rm -f scale/tiny_dit/tiny_dit.safetensors scale/tiny_dit/state/000000060.safetensors
cp -r scale resumed
check "it goes on" "$host" train --config scale.yaml --out resumed --resume
rm -rf scale && check "a run that did not stop" "$host" train --config scale.yaml --out scale
check "... gives the same bytes" cmp scale/tiny_dit/tiny_dit.safetensors resumed/tiny_dit/tiny_dit.safetensors
check "its file is told apart" prints "adapter 'input_scale' of a plugin, with {strength: 2}" \
  "$host" inspect scale/tiny_dit/tiny_dit.safetensors
check "... and fits its model" prints "lora-host  14 loaded, 0 unmatched" \
  "$host" verify scale/tiny_dit/tiny_dit.safetensors --config tiny_dit.yaml
scaled() { "$host" sample --config tiny_dit.yaml --lora scale/tiny_dit/tiny_dit.safetensors --out "$1"; }
differ() { ! cmp -s "$1" "$2"; }
check "a sample without it" "$host" sample --config tiny_dit.yaml --out plain.png
check "... and with it" scaled scaled.png
check "... which is seen" differ scaled.png plain.png
sed 's/strength: 2/strength: 0/' scale.yaml >weak.yaml
check "its options are checked" refuses "weak.yaml:4:57" "$host" train --config weak.yaml --dry-run
check "it is installed beside the host's plugins" cmake --install "$work/$(basename "$(cache CMAKE_CXX_COMPILER)")/template" \
  --prefix "$prefix"
unset LORA_HOST_PLUGIN_PATH
check "and found there" prints "$plugins/tiny_dit.so" "$host" plugins
check "with its tokenizer" "$host" sample --config tiny_dit.yaml --out installed.png
check "and its adapter" scaled again.png
check "... which draws the same" cmp scaled.png again.png

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
