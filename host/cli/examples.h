// What stands at the end of each command's help: examples, and what there is to know besides.
#pragma once

namespace lh::examples {

inline constexpr const char* program = R"(Examples:
  lora-host train --model model.safetensors --dataset photos --rank 32 --steps 1000
  lora-host --plugin ID --config train.yaml        (train is the command when none is named)
  lora-host sample --model model.safetensors --lora my.safetensors --prompt "a photo of my dog"
  lora-host COMMAND --help

Environment: LORA_LOG=debug|info|warning|error, LORA_VERBOSE=graph,plan,dispatch,memory,time)";
inline constexpr const char* train = R"(Examples:
  lora-host train --config train.yaml
  lora-host train --config train.yaml --dry-run
  lora-host train --config train.yaml --resume
  lora-host train --model model.safetensors --dataset photos --rank 32 --alpha 32 --steps 1000 --lr 1e-4 --fp16
  lora-host train --model PLUGIN --checkpoint model.safetensors --dataset photos --trigger "my dog" --name dog

Flags override the configuration file. All keys: docs/config.md)";
inline constexpr const char* init = R"(Examples:
  lora-host init --model PLUGIN --vram 24 --dataset photos --for subject --trigger "sks dog"
  lora-host init --model models/base.safetensors --vram "rtx 4070" --dataset photos --for style --out style.yaml
  lora-host init --from job.yaml
  lora-host init --from training.toml --dataset-config dataset.toml --out train.yaml

What is written passes train --dry-run. Files of the model that are not named are looked for in --models, by what is in
them.)";
inline constexpr const char* check = R"(Examples:
  lora-host check photos
  lora-host check photos --resolution 512,768 --model model.safetensors
  lora-host check train.yaml --json

Every picture is decoded in a process of its own. Ends with 3 where something would stop the training; what is told:
docs/data.md)";
inline constexpr const char* watch = R"(Examples:
  lora-host watch                    (the newest run in ./output)
  lora-host watch output/dog --port 9000

The page is for browsers of this machine: the server listens at 127.0.0.1. From elsewhere: ssh -L 8765:localhost:8765 HOST)";
inline constexpr const char* ctl = R"(Commands, each done between two steps:
  set KEY=VALUE...   settings of train: lr, text_encoder_lr, loraplus_lr_ratio, module_lr_ratio, role_weight_decay,
                     lr_scheduler, lr_scheduler_params, optimizer, optimizer_params
  save               the state and the LoRA as they are
  sample PROMPT...   an image of each prompt
  status             where the run is
  pause, resume      stand still, go on
  stop               save and end, as Ctrl-C does

Examples:
  lora-host ctl output/dog set lr=5e-5
  lora-host ctl output/dog set optimizer=adamw8bit optimizer_params.weight_decay=0.1 lr=1e-4
  lora-host ctl output/dog sample "my dog on the moon"

What is set is in history.jsonl of the run's folder; a resumed run repeats it (docs/phases.md))";
inline constexpr const char* sample = R"(Examples:
  lora-host sample --model model.safetensors --prompt "a red bicycle" --out bicycle.png
  lora-host sample --config train.yaml --lora dog.safetensors:0.8 --lora style.safetensors --prompt "my dog" --seed 7)";
inline constexpr const char* plugins = R"(Examples:
  lora-host plugins
  lora-host plugins --verbose
  lora-host plugins --plugin-dir ./build/plugins)";
inline constexpr const char* inspect = R"(Examples:
  lora-host inspect model.safetensors
  lora-host inspect my_lora.safetensors
  lora-host inspect my_lora.safetensors --json
  lora-host inspect dog.png)";
inline constexpr const char* verify = R"(Examples:
  lora-host verify my_lora.safetensors --model model.safetensors
  lora-host verify my_lora.safetensors --model model.safetensors --for comfyui,diffusers --json

Ends with 3 where a key is left over: of the programs in --for, or of those that the file's names are meant for.)";
inline constexpr const char* merge = R"(Examples:
  lora-host merge --lora dog.safetensors:0.8 --lora style.safetensors:0.5 --model model.safetensors --into checkpoint --out dog_model.safetensors
  lora-host merge --lora dog.safetensors --lora style.safetensors:0.5 --model model.safetensors --into lora --out both.safetensors
  lora-host merge --lora a.safetensors --lora b.safetensors --model model.safetensors --into lora --rank 32 --out both.safetensors

Into a LoRA, the sum is exact, with the sum of the ranks, or the best one of the rank or share that is asked for. Into a
checkpoint, the weights are what sample --lora makes of them. A LoRA's text encoders need their files: --clip, --t5, ...
docs/lora-tools.md)";
inline constexpr const char* convert = R"(Examples:
  lora-host convert dog.safetensors --format diffusers --model model.safetensors --out dog_diffusers.safetensors
  lora-host convert dog.safetensors --save-dtype bf16 --out dog_bf16.safetensors

Another format needs --model, whose layers the names are. docs/lora-tools.md)";
inline constexpr const char* extract = R"(Examples:
  lora-host extract tuned.safetensors --model base.safetensors --rank 64 --out tuned_lora.safetensors
  lora-host extract tuned.safetensors --model base.safetensors --energy 0.95 --rank 256 --out tuned_lora.safetensors

--model is the checkpoint that the file was trained from. docs/lora-tools.md)";
inline constexpr const char* resize = R"(Examples:
  lora-host resize dog.safetensors --rank 8 --out dog_8.safetensors
  lora-host resize dog.safetensors --energy 0.99 --model model.safetensors --out dog_small.safetensors

With --model it ends with the programs that load the file. docs/lora-tools.md)";
inline constexpr const char* make = R"(Examples:
  lora-host make-checkpoint --like keys.json toy.safetensors --seed 1)";
inline constexpr const char* bench = R"(Examples:
  lora-host bench --model model.safetensors --resolution 1024 --rank 16
  lora-host bench --plugin NAME --like keys.json --resolution 1024 --rank 16 --times
  lora-host bench --config train.yaml --tune)";

inline constexpr const char* plan = R"(Examples:
  lora-host plan --config train.yaml
  lora-host plan --config train.yaml --budget 24,16,12,8
  lora-host plan --config train.yaml --card "rtx 4070"
  lora-host plan --plugin NAME --like keys.json --resolution 1024 --rank 16 --card "12 GB, 58 TFLOP/s, 504 GB/s" --link 12GB/s

Each row is the fastest way, by prediction, to stay within a budget (docs/memory.md). Nothing runs.)";

}  // namespace lh::examples
