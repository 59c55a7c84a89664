#!/usr/bin/env bash
# Several processes train one run, on this machine and without a network: the bytes of one process with accumulation,
# resumed on other numbers, encoding in parallel, and what happens when one of them is lost, hangs, is stopped or is not
# like the others.
#
#   tests/mpi_test.sh BUILD
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$root/tests/support/checks.sh"
host=$build/bin/lora-host
shim=$build/lib/lora-host-test/shims/rank_fault.so

export OMP_NUM_THREADS=1 LORA_RANK_SECONDS=4
# Only this machine, and as many processes as are asked for.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# config NAME ACCUMULATION STEPS [SED OPTION...]: a configuration in a folder of its own, with the encoded images and
# prompts that are there already.
config() {
  local folder=$work/$1 accumulation=$2 steps=$3
  shift 3
  mkdir -p "$folder"
  [ ! -d "$work/cache" ] || cp -r "$work/cache" "$folder/cache"
  sed -e '' "$@" >"$folder/train.yaml" <<EOF
name: toy
training_folder: $folder
device: cpu
model:
  name_or_path: $root/examples/toy_flux/flux_toy.safetensors
  vae_path: $root/examples/toy_flux/ae.safetensors
  clip_path: $root/examples/toy_flux/clip_l.safetensors
  t5_path: $root/examples/toy_flux/t5xxl.safetensors
  max_sequence_length: 32
network:
  linear: 2
  dropout: 0.1
datasets:
  - folder_path: $root/examples/demo/photos
    resolution: 64
    caption_dropout_rate: 0.5
    flip_x: true
train:
  batch_size: 1
  gradient_accumulation: $accumulation
  steps: $steps
  lr: 1e-3
  optimizer: adamw
  dtype: fp32
  seed: 42
  ema_config:
    use_ema: true
sample:
  sample_every: 0
  sample_steps: 2
  width: 64
  height: 64
  prompts: []
save:
  save_every: 2
  max_step_saves_to_keep: 2
EOF
}
alone() { "$host" train --config "$work/$1/train.yaml" "${@:2}"; }  # alone NAME [ARGUMENT...]
ranks() { timeout 240 mpirun -n "$1" "$host" train --config "$work/$2/train.yaml" "${@:3}"; }  # ranks N NAME [ARGUMENT...]
same() {  # same NAME NAME: LoRA, metrics
  cmp "$work/$1/toy/toy.safetensors" "$work/$2/toy/toy.safetensors" && cmp "$work/$1/toy/metrics.csv" "$work/$2/toy/metrics.csv"
}
# Survivors of one that is killed are left alone, so that their own way out is seen; mpirun then ends with 0.
surviving() {  # surviving N NAME
  timeout 240 mpirun --enable-recovery -n "$1" sh -c '"$0" "$@"; echo "ended with exit status $?"' "$host" train \
    --config "$work/$2/train.yaml"
}
ends() {  # ends STATUS COMMAND...
  local wanted=$1 status=0
  shift
  "$@" >"$work/said" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || { cat "$work/said"; echo "ended with $status, expected $wanted"; return 1; }
}
said() { grep -qF -- "$1" "$work/said" || { cat "$work/said"; echo "expected to find: $1"; return 1; }; }
# Nothing of a run is left running: no process has its configuration on its command line.
nobody() { ! pgrep -f "train --config $work/$1/train.yaml" || { echo "processes are left"; return 1; }; }

if ! "$host" --version | grep -q '^MPI: Open MPI'; then
  config refused 1 2
  check "without MPI several processes are refused, with how to get it" \
    refuses "libopenmpi-dev" env OMPI_COMM_WORLD_SIZE=2 "$host" train --config "$work/refused/train.yaml"
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
fi

# --- encoding, each a part of it; one is killed while it encodes, and the others leave
config encoding 1 2
encoding_killed() {
  RANK_FAULT_RANK=1 RANK_FAULT_PATH=cache/latents RANK_FAULT_SIGNAL=9 LD_PRELOAD=$shim \
    ends 0 surviving 3 encoding || return 1
  said "lost rank 1" && said "is gone" && said "ended with exit status 13" && nobody encoding
}
check "an encoder is killed: the others say which, and end" encoding_killed
check "what is missing is encoded by those that come next" ranks 2 encoding
mv "$work/encoding/cache" "$work/cache"
config alone_encoding 1 2
rm -r "$work/alone_encoding/cache"
check "one process encodes the same" alone alone_encoding
same_cache() { diff -r -x .claims -x '*.seen' "$work/cache" "$work/alone_encoding/cache"; }
check "to the byte" same_cache

# --- one meaning of a step
config one 6 4
config two 3 4
config three 2 4
config again 2 4
check "one process with six micro-batches a step" alone one
check "two processes with three" ranks 2 two
check "give its bytes" same one two
check "three processes with two" ranks 3 three
check "give its bytes" same one three
check "the same three again" ranks 3 again
check "give the same bytes" same three again
config loose 3 4 -e 's/  seed: 42/  seed: 42\n  deterministic: false/'
check "sums in any order" ranks 2 loose
near() {  # losses within 1e-6
  paste -d, "$work/one/toy/metrics.csv" "$work/loose/toy/metrics.csv" |
    awk -F, 'NR > 1 { d = $2 - $6; if (d < 0) d = -d; if (d > 1e-6 * $2) exit 1; ++n } END { exit n == 4 ? 0 : 1 }'
}
check "give its losses to 1e-6" near

# --- gradients that travel as bfloat16
rounded=(-e 's/  seed: 42/  seed: 42\n  reduce_dtype: bfloat16/')
config rounded_two 3 4 "${rounded[@]}"
config rounded_three 2 4 "${rounded[@]}"
check "gradients travel as bfloat16, two processes" ranks 2 rounded_two
check "three processes" ranks 3 rounded_three
check "give the same bytes" same rounded_two rounded_three
differ() { ! cmp -s "$work/one/toy/toy.safetensors" "$work/rounded_two/toy/toy.safetensors"; }
check "which are not those of float32" differ
close_to_one() {  # the loss before the first update is the same, those after it to what rounding moves
  paste -d, "$work/one/toy/metrics.csv" "$work/rounded_two/toy/metrics.csv" |
    awk -F, 'NR > 1 { d = $2 - $6; if (d < 0) d = -d; if (d > (NR == 2 ? 0 : $2 / 128)) exit 1; ++n } END { exit n == 4 ? 0 : 1 }'
}
check "but near them" close_to_one
config rounded_moved 3 2 "${rounded[@]}"
check "begun by two" ranks 2 rounded_moved
sed -i 's/steps: 2/steps: 4/; s/gradient_accumulation: 3/gradient_accumulation: 2/' "$work/rounded_moved/train.yaml"
check "continued by three" ranks 3 rounded_moved --resume
check "gives the same bytes" same rounded_two rounded_moved
sed -i 's/steps: 4/steps: 5/; s/reduce_dtype: bfloat16/reduce_dtype: float32/' "$work/rounded_moved/train.yaml"
check "with the other type it is refused" refuses "gradients travel as bfloat16" ranks 3 rounded_moved --resume

# --- what is drawn for each use of an image, and a second loss
drawing=(-e 's/    caption_dropout_rate: 0.5/    caption_dropout_rate: 0.3\n    caption_prefix: "{red|blue|green} sky, tree, house"\n    enable_wildcard: true\n    shuffle_tokens: true\n    token_dropout_rate: 0.2\n    random_triggers: [one, two, three]\n    random_triggers_max: 2\n    random_crop: true\n    augment_variants: 2/'
  -e 's/^train:/trigger_word: sks\ntrain:\n  diff_output_preservation: true\n  diff_output_preservation_class: dog/')
config drawn_one 4 3 "${drawing[@]}"
config drawn_two 2 3 "${drawing[@]}"
check "captions and crops that are drawn, one process with four micro-batches" alone drawn_one
check "two processes with two" ranks 2 drawn_two
check "give its bytes" same drawn_one drawn_two
drawn_says() { alone drawn_one --dry-run >"$work/said" && said "samples have captions that are drawn" && said "as without adapters"; }
check "of captions that were drawn, and the second loss" drawn_says

# --- another number of processes goes on with the same samples
config whole 2 6
config moved 1 2
check "two micro-batches a step" alone whole
check "begun by two processes" ranks 2 moved
sed -i 's/steps: 2/steps: 4/' "$work/moved/train.yaml"
check "continued by three" ranks 3 moved --resume
sed -i 's/steps: 4/steps: 6/' "$work/moved/train.yaml"
check "ended by one" alone moved --resume
check "gives the bytes of one" same whole moved

# --- a process is lost: the others say which within seconds, save what is whole, and end; what they leave goes on to the
# --- bytes of a run that nothing disturbed
config calm 2 6 -e "s/prompts: \[\]/prompts: [a photo]/" -e 's/sample_every: 0/sample_every: 3/'
check "two processes, undisturbed, with samples" ranks 2 calm  # the prompts that the others find encoded, too
rm -r "$work/cache" && cp -r "$work/calm/cache" "$work/cache"

# --- each has a part of the frozen weights
parts=(-e "s/prompts: \[\]/prompts: [a photo]/" -e 's/sample_every: 0/sample_every: 3/' -e 's/^train:/memory:\n  shard_base: true\ntrain:/')
config parts 2 6 "${parts[@]}"
check "two processes with a part of the weights each" ranks 2 parts
check "give the bytes of those that have all" same calm parts
same_samples() { diff -r -x '*.json' "$work/calm/toy/samples" "$work/parts/toy/samples"; }
check "and their samples" same_samples
config codes 4 3 -e 's/^model:/model:\n  dtype: nf4/'
config parts_of_codes 2 3 -e 's/^model:/model:\n  dtype: nf4/' -e 's/^train:/memory:\n  shard_base: true\ntrain:/'
check "one process with weights in 4 bits" alone codes
check "two with a part of them each, and of their factors" ranks 2 parts_of_codes
check "give its bytes" same codes parts_of_codes
total_of() { ranks 2 "$1" --dry-run | sed -n 's/^memory *\([0-9.]*\) MiB.*/\1/p'; }
within_budget() {  # with all tokens that the model has, whose activations can be made again
  local budget all=("${parts[@]}" -e '/max_sequence_length/d')
  config parts_of_more 2 6 "${all[@]}"
  budget=$(awk -v all="$(total_of parts_of_more)" 'BEGIN { printf "%.2f", 0.97 * all }')
  config parts_in_budget 2 6 "${all[@]}" -e "s/  shard_base: true/  shard_base: true\n  budget: $budget MiB/"
  ranks 2 parts_of_more && ranks 2 parts_in_budget && same parts_of_more parts_in_budget
}
check "in less memory than that takes, they give the same bytes" within_budget
config parts_of_three 2 4 -e 's/^train:/memory:\n  shard_base: true\n  recompute: 60%\ntrain:/'
check "three processes, whose parts leave a rest, with recomputation" ranks 3 parts_of_three
check "give the bytes of one that has all" same one parts_of_three
weights_of() {  # MiB, as the plan has them
  ranks 2 "$1" --dry-run | sed -n 's/^memory .*: weights \([0-9.]*\),.*/\1/p'
}
fewer() { awk -v part="$(weights_of parts)" -v all="$(weights_of calm)" 'BEGIN { exit part > 0 && part < 0.75 * all ? 0 : 1 }'; }
check "the plan has the part" fewer
sed -i 's/steps: 4/steps: 5/' "$work/parts_of_three/train.yaml"
check "parts for processes that cannot share a step are refused" refuses "cannot share 6 micro-batches evenly" ranks 4 parts_of_three --resume
config parts_streamed 1 2 -e 's/^train:/memory:\n  shard_base: true\n  stream: 50%\ntrain:/'
check "parts and streaming are refused" refuses "two ways to keep the weights elsewhere" ranks 2 parts_streamed
check "one process has all" alone parts_of_three --resume

lost() {  # lost NAME RANK SIGNAL PATH EXPECTED...: the process gets the signal when it publishes such a file
  local name=$1 rank=$2 signal=$3 path=$4 text
  shift 4
  config "$name" 2 6 -e "s/prompts: \[\]/prompts: [a photo]/" -e 's/sample_every: 0/sample_every: 3/'
  RANK_FAULT_RANK=$rank RANK_FAULT_PATH=$path RANK_FAULT_SIGNAL=$signal LD_PRELOAD=$shim \
    ends 0 surviving 2 "$name" || return 1
  for text in "lost rank $rank" "ended with exit status 13" "$@"; do said "$text" || return 1; done
  nobody "$name"
}
goes_on() { ranks 2 "$1" --resume && same calm "$1"; }
check "the first is killed while it saves: the second saves" \
  lost saving 0 9 state/000000002 "is gone" "The state after step 2 is saved"
check "and both go on from there" goes_on saving
check "the first is killed at its samples" lost sampling 0 9 samples/000000003 "is gone" "The state after step 3 is saved"
check "and both go on from there" goes_on sampling
check "the first hangs while it saves: the folder is still its own" \
  lost hanging 0 19 state/000000004 "has been silent for 4 seconds" "another run is writing there"
check "and both go on from there" goes_on hanging

# wait_for NAME STEPS: until that many are in the metrics
wait_for() {
  for ((i = 0; i < 2400; ++i)); do  # two minutes: a limit alone, for a machine with much else to do
    [ "$(wc -l 2>/dev/null <"$work/$1/toy/metrics.csv" || echo 0)" -gt "$2" ] && return 0
    sleep 0.05
  done
  echo "step $2 is not reached"
  return 1
}
process_of() {  # process_of NAME RANK
  local pid
  for pid in $(pgrep -f "^$host train --config $work/$1/train.yaml"); do
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
  done
}
in_a_step() {  # in_a_step NAME SIGNAL STATUS STARTED: the second of three gets a signal between two saves
  local name=$1 signal=$2 status=$3
  config "$name" 2 400 -e 's/save_every: 2/save_every: 0/'
  $4 3 "$name" >"$work/said" 2>&1 &
  local launcher=$! ended=0
  wait_for "$name" 5 && kill "-$signal" "$(process_of "$name" 1)"
  wait $launcher || ended=$?
  [ "$ended" -eq "$status" ] || { cat "$work/said"; echo "ended with $ended, expected $status"; return 1; }
  nobody "$name" && ls "$work/$name"/toy/state/*.safetensors
}
killed_in_a_step() {
  in_a_step killed KILL 0 surviving && said "lost rank 1" && said "is gone" && said "is saved" &&
    said "ended with exit status 13"
}
check "one is killed in a step: the state before it is saved" killed_in_a_step
stopped_in_a_step() { in_a_step stopped STOP 13 ranks && said "lost rank 1" && said "has been silent" && said "is saved"; }
check "one hangs in a step: likewise, and it is ended" stopped_in_a_step
told_in_a_step() { in_a_step told TERM 75 ranks && said "stopped by a signal after step"; }
check "one is told to stop: all stop at that step" told_in_a_step
default_launcher() {  # that ends all others a second after one is gone
  in_a_step defaulted KILL 137 ranks && ls "$work"/defaulted/toy/state/*.safetensors
}
check "as mpirun ends all when one is killed, there is still the time to save" default_launcher
last_step() { basename "$(ls "$work/$1"/toy/state/*.safetensors | tail -n 1)" .safetensors | sed 's/^0*//'; }
resumed_anywhere() {  # one process goes on from what three left, and gives what it gives undisturbed
  local name step
  for name in killed stopped told defaulted; do
    step=$(($(last_step "$name") + 2))
    sed -i "s/steps: 400/steps: $step/" "$work/$name/train.yaml"
    alone "$name" --resume || return 1
    config "calm_$name" 6 "$step"
    alone "calm_$name" || return 1
    cmp "$work/$name/toy/toy.safetensors" "$work/calm_$name/toy/toy.safetensors" || return 1
  done
}
check "one process goes on from what each of them left, to the bytes of one" resumed_anywhere

# --- mpirun started here, and again
config restarted 2 6 -e "s/prompts: \[\]/prompts: [a photo]/" -e 's/sample_every: 0/sample_every: 3/'
restarts() {  # restarts NAME N: the first is killed when it saves the state after step 2, which is there from then on
  RANK_FAULT_RANK=0 RANK_FAULT_PATH=state/000000002 RANK_FAULT_SIGNAL=9 LD_PRELOAD=$shim OMPI_MCA_odls_base_sigkill_timeout=5 \
    timeout 100 "$host" train --config "$work/$1/train.yaml" --processes 2 --restarts "$2"
}
started_again() { restarts restarted 1 >"$work/said" 2>&1 || { cat "$work/said"; return 1; } && said "it goes on from its last state"; }
check "--restarts: a run that lost a process goes on by itself" started_again
check "to the bytes of one that nothing disturbed" same calm restarted
config once 2 6
check "without it the exit status is mpirun's" ends 137 restarts once 0
mkdir "$work/launcher"
printf '#!/bin/sh\necho "mpirun $*"\n' >"$work/launcher/mpirun"
chmod +x "$work/launcher/mpirun"
launched() { PATH=$work/launcher:$PATH "$host" train --config "$work/once/train.yaml" --processes 2 >"$work/said"; }
rescued() { launched && said "mpirun -n 2 --mca odls_base_sigkill_timeout 30 $host train"; }
check "the others have half a minute to save" rescued
rescued_as_told() { OMPI_MCA_odls_base_sigkill_timeout=5 launched && said "mpirun -n 2 $host train"; }
check "or what the environment says" rescued_as_told
check "--restarts without --processes is refused" refuses "give --processes N too" alone once --restarts 1

# --- spoken to
config spoken 1 400 -e 's/save_every: 2/save_every: 0/'
speak() {
  timeout 240 mpirun -n 2 "$host" train --config "$work/spoken/train.yaml" >"$work/said" 2>&1 &
  local launcher=$! ended=0
  wait_for spoken 2
  "$host" ctl "$work/spoken/toy" pause && "$host" ctl "$work/spoken/toy" set lr=5e-4 && "$host" ctl "$work/spoken/toy" save &&
    "$host" ctl "$work/spoken/toy" resume && "$host" ctl "$work/spoken/toy" stop || ended=1
  wait $launcher
  [ "$?" -eq 75 ] && [ "$ended" -eq 0 ] || { cat "$work/said"; return 1; }
  grep -q 'lr: 5e-04\|lr: 0.0005\|5e-4' "$work/spoken/toy/history.jsonl"
}
check "ctl speaks to all of them through the first" speak

# --- not alike
config alike 1 2
config other 1 2 -e 's/lr: 1e-3/lr: 2e-3/' -e 's/seed: 42/seed: 43/' -e "s|$work/other|$work/alike|"
unlike() {
  ends 2 timeout 240 mpirun -n 1 "$host" train --config "$work/alike/train.yaml" : -n 1 "$host" train \
    --config "$work/other/train.yaml" && said "train.lr\`: rank 0 has" && said "train.seed\`: rank 0 has 42, rank 1 has 43"
}
check "processes with other settings are refused, with ranks and values" unlike
config diverging 1 4
diverge() {
  RANK_FAULT_RANK=2 RANK_FAULT_UPDATE=1 LD_PRELOAD=$shim \
    ends 14 timeout 240 mpirun -n 3 "$host" train --config "$work/diverging/train.yaml" || return 1
  said "after step 2: rank 2" && said "has other weights than most processes"
}
check "a process that computes something else is named, and its weights are not saved" diverge
check "a command that is no work for several is refused" refuses "the work of one process" mpirun -n 2 "$host" plugins
alone_as_before() { ! ldd "$host" | grep -q libmpi && mpirun -n 1 "$host" train --dry-run --config "$work/alike/train.yaml"; }
check "one process needs no MPI, and under mpirun it is one" alone_as_before

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
