#!/usr/bin/env bash
# Every configuration under examples/configs with model files of full size, and the card that its name has: all that --dry-run
# looks at, and whether a step fits, with the row of its plan. The files have the names, types and shapes of the published ones and no contents.
#
#   scripts/check_configs.sh BUILD KEY_LISTS
#
# KEY_LISTS is a folder with a list for each published file, as lora-host make-checkpoint --like reads them: flux1-dev.json.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
lists=$(cd "${2:?usage: scripts/check_configs.sh BUILD KEY_LISTS}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$root/tests/support/checks.sh"
source "$root/tests/support/key_lists.sh"
host=$build/bin/lora-host

# hollow FILE LIST[:PREFIX]...: a checkpoint with the tensors of the lists, the names of one behind a prefix; its contents
# take no space on the disk.
hollow() {
  python3 - "$work/models/$1" "${@:2}" <<'EOF'
import json, math, os, sys
size = {"F32": 4, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I64": 8}
header, at = {}, 0
for name in sys.argv[2:]:
    name, _, prefix = name.partition(":")
    for key, (dtype, shape) in json.load(open(name))["tensors"].items():
        end = at + size[dtype] * math.prod(shape)
        header[prefix + key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as out:
    out.write(len(text).to_bytes(8, "little") + text)
    out.truncate(8 + len(text) + at)
EOF
}
mkdir -p "$work/models/FLUX.2-dev" "$work/photos"
# The text encoder of Flux.2 dev, for which there may be no list, and its kin: 32 heads of 128, 8 of keys.
llm_keys() { # llm_keys LAYERS WIDTH INNER WORDS
  local list= layer
  tensor model.embed_tokens.weight "$4, $2"; tensor model.norm.weight $2
  for layer in $(seq -f model.layers.%g 0 $(($1 - 1))); do
    tensor $layer.input_layernorm.weight $2; tensor $layer.post_attention_layernorm.weight $2
    linear $layer.self_attn.q_proj 4096 $2 no; linear $layer.self_attn.o_proj $2 4096 no
    linear $layer.self_attn.k_proj 1024 $2 no; linear $layer.self_attn.v_proj 1024 $2 no
    linear $layer.mlp.gate_proj $3 $2 no; linear $layer.mlp.up_proj $3 $2 no
    linear $layer.mlp.down_proj $2 $3 no
  done
  print_keys
}
llm_keys 40 5120 32768 131072 >"$work/mistral.json"
# Those of ERNIE-Image, too.
llm_keys 26 3072 9216 131072 >"$work/ministral.json"
ernie_image_keys 36 4096 12288 3072 >"$work/ernie_image.json"
# What Qwen2.5-VL sees with, which is not in the list of its language model.
qwen_vision_keys() {
  local list= layer
  tensor visual.patch_embed.proj.weight "1280, 3, 2, 14, 14"; tensor visual.merger.ln_q.weight 1280
  linear visual.merger.mlp.0 5120 5120; linear visual.merger.mlp.2 3584 5120
  for layer in visual.blocks.{0..31}; do
    tensor $layer.norm1.weight 1280; tensor $layer.norm2.weight 1280
    linear $layer.attn.qkv 3840 1280; linear $layer.attn.proj 1280 1280
    linear $layer.mlp.gate_proj 3420 1280; linear $layer.mlp.up_proj 3420 1280; linear $layer.mlp.down_proj 1280 3420
  done
  print_keys
}
qwen_vision_keys >"$work/qwen_vision.json"
# What Qwen3-VL 4B does.
qwen3_vision_keys() {
  local list= layer merger
  tensor visual.patch_embed.proj.weight "1024, 3, 2, 16, 16"; tensor visual.patch_embed.proj.bias 1024
  tensor visual.pos_embed.weight "2304, 1024"
  for layer in visual.blocks.{0..23}; do
    tensor $layer.norm1.weight 1024; tensor $layer.norm1.bias 1024; tensor $layer.norm2.weight 1024; tensor $layer.norm2.bias 1024
    linear $layer.attn.qkv 3072 1024; linear $layer.attn.proj 1024 1024
    linear $layer.mlp.linear_fc1 4096 1024; linear $layer.mlp.linear_fc2 1024 4096
  done
  tensor visual.merger.norm.weight 1024; tensor visual.merger.norm.bias 1024
  for merger in visual.merger visual.deepstack_merger_list.{0..2}; do
    [ $merger = visual.merger ] || { tensor $merger.norm.weight 4096; tensor $merger.norm.bias 4096; }
    linear $merger.linear_fc1 4096 4096; linear $merger.linear_fc2 2560 4096
  done
  print_keys
}
qwen3_vision_keys >"$work/qwen3_vision.json"
# Those of Qwen-Image 2.1, Krea 2 and Wan, too.
qwen_image21_transformer_keys 32 4096 4096 >"$work/qwen_image21.json"
qwen_image21_vae_keys 96 144 >"$work/qwen_image21_vae.json"
krea2_transformer_keys 28 6144 16384 2560 6912 12 >"$work/krea2.json"
ideogram4_transformer_keys 34 4608 12288 512 53248 >"$work/ideogram4.json"
wan_transformer_keys 30 1536 8960 4096 >"$work/wan_1_3b.json"
wan_transformer_keys 40 5120 13824 4096 >"$work/wan_14b.json"
wan_transformer_keys 40 5120 13824 4096 16 20 >"$work/wan_i2v_14b.json"
wan_transformer_keys 40 5120 13824 4096 16 20 1280 >"$work/wan21_i2v_14b.json"
clip_vision_keys 32 1280 5120 14 257 >"$work/clip_vision.json"
wan_transformer_keys 30 3072 14336 4096 48 >"$work/wan_5b.json"
wan22_vae_keys 160 256 >"$work/wan22_vae.json"
umt5_keys 24 4096 10240 256384 >"$work/umt5.json"
auraflow_transformer_keys 4 32 3072 8192 2048 9216 >"$work/auraflow.json"
umt5_keys 24 2048 5120 32128 >"$work/pile_t5.json"
# Those of Anima, too.
anima_keys 28 2048 8192 256 6 1024 32128 >"$work/anima.json"
qwen3_06b_keys() {
  local list= layer
  tensor model.embed_tokens.weight "151936, 1024"; tensor model.norm.weight 1024
  for layer in model.layers.{0..27}; do
    tensor $layer.input_layernorm.weight 1024; tensor $layer.post_attention_layernorm.weight 1024
    tensor $layer.self_attn.q_norm.weight 128; tensor $layer.self_attn.k_norm.weight 128
    linear $layer.self_attn.q_proj 2048 1024 no; linear $layer.self_attn.o_proj 1024 2048 no
    linear $layer.self_attn.k_proj 1024 1024 no; linear $layer.self_attn.v_proj 1024 1024 no
    linear $layer.mlp.gate_proj 3072 1024 no; linear $layer.mlp.up_proj 3072 1024 no
    linear $layer.mlp.down_proj 1024 3072 no
  done
  print_keys
}
qwen3_06b_keys >"$work/qwen3_06b.json"
qwen25_3b_keys() {
  local list= layer
  tensor model.embed_tokens.weight "151936, 2048"; tensor model.norm.weight 2048
  for layer in model.layers.{0..35}; do
    tensor $layer.input_layernorm.weight 2048; tensor $layer.post_attention_layernorm.weight 2048
    linear $layer.self_attn.q_proj 2048 2048; linear $layer.self_attn.o_proj 2048 2048 no
    linear $layer.self_attn.k_proj 256 2048; linear $layer.self_attn.v_proj 256 2048
    linear $layer.mlp.gate_proj 11008 2048 no; linear $layer.mlp.up_proj 11008 2048 no
    linear $layer.mlp.down_proj 2048 11008 no
  done
  print_keys
}
qwen25_3b_keys >"$work/qwen25_3b.json"
omnigen2_transformer_keys 32 2520 840 120 10240 2048 1024 >"$work/omnigen2.json"
flux3_transformer_keys 3072 20480 5 28 >"$work/flux3.json"
lumina2_transformer_keys 26 2304 768 96 9216 2304 1024 >"$work/lumina2.json"
gemma2_keys 26 2304 2048 1024 9216 256000 >"$work/gemma2.json"
ltx2_keys 48 4096 3840 49 >"$work/ltx2.json"
gemma2_keys 48 3840 4096 2048 15360 262208 256 >"$work/gemma3.json"
hidream_transformer_keys 16 32 2560 4096 4096 2048 6912 3584 >"$work/hidream.json"
llm_keys 32 4096 14336 128256 >"$work/llama31.json"
hidream_o1_keys 36 4096 1024 12288 151936 >"$work/hidream_o1.json"
clip_keys() { # clip_keys LAYERS WIDTH POSITIONS: with a projection to its own width
  local list= layer name
  tensor text_model.embeddings.token_embedding.weight "49408, $2"; tensor text_model.embeddings.position_embedding.weight "$3, $2"
  for layer in $(seq -f text_model.encoder.layers.%g 0 $(($1 - 1))); do
    for name in layer_norm1 layer_norm2; do tensor $layer.$name.weight $2; tensor $layer.$name.bias $2; done
    for name in q_proj k_proj v_proj out_proj; do linear $layer.self_attn.$name $2 $2; done
    linear $layer.mlp.fc1 $((4 * $2)) $2; linear $layer.mlp.fc2 $2 $((4 * $2))
  done
  tensor text_model.final_layer_norm.weight $2; tensor text_model.final_layer_norm.bias $2; tensor text_projection.weight "$2, $2"
  print_keys
}
clip_keys 12 768 248 >"$work/clip_l_hidream.json"
clip_keys 32 1280 218 >"$work/clip_g_hidream.json"
hunyuan_image_transformer_keys 20 40 3584 3584 1472 >"$work/hunyuan_image.json"
hunyuan_image_vae_keys 128 >"$work/hunyuan_image_vae.json"
hunyuan_video1_transformer_keys 20 40 3072 4096 768 >"$work/hunyuan_video1.json"
hunyuan_video1_vae_keys 128 >"$work/hunyuan_video1_vae.json"
llm_keys 32 4096 14336 128320 >"$work/llama3.json"
hunyuan_video_transformer_keys 54 2048 3584 1472 >"$work/hunyuan_video.json"
hunyuan_video_vae_keys 128 >"$work/hunyuan_video_vae.json"
byt5_keys 12 1472 6 3584 1510 >"$work/byt5.json"
# The first layers for inpainting are wider than those of the lists.
python3 - "$lists" "$work" <<'EOF'
import json, sys
for name, source, key, width in (("flux1-fill-dev", "flux1-dev", "img_in.weight", 384),
                                 ("sd_xl_inpainting_0.1", "sd_xl_base_1.0", "input_blocks.0.0.weight", 9)):
    keys = json.load(open(f"{sys.argv[1]}/{source}.json"))
    for found, (dtype, shape) in keys["tensors"].items():
        if found.endswith(key): shape[1] = width
    json.dump(keys, open(f"{sys.argv[2]}/{name}.json", "w"))
EOF
# Chroma on pixels: other ends around the same blocks.
python3 - "$lists" "$work" <<'EOF'
import json, sys
tensors = json.load(open(sys.argv[1] + "/Chroma1-HD.json"))["tensors"]
tensors = {name: what for name, what in tensors.items() if not name.startswith(("img_in.", "final_layer."))}
def add(module, *shape):
    tensors[module + ".weight"] = ["BF16", list(shape)]; tensors[module + ".bias"] = ["BF16", [shape[0]]]
add("img_in_patch", 3072, 3, 16, 16); add("nerf_image_embedder.embedder.0", 64, 3 + 8 * 8)
for i in range(4):
    add(f"nerf_blocks.{i}.param_generator", 3 * 64 * 256, 3072); tensors[f"nerf_blocks.{i}.norm.scale"] = ["BF16", [64]]
add("nerf_final_layer_conv.conv", 3, 64, 3, 3); tensors["nerf_final_layer_conv.norm.scale"] = ["BF16", [64]]
json.dump({"tensors": tensors}, open(sys.argv[2] + "/chroma_radiance.json", "w"))
EOF
# Stable Diffusion 1 and 2, for which there may be no lists: all but the autoencoder, which has SDXL's shapes.
python3 - "$work" <<'EOF'
import json, sys
def tensors(context, linears, width, layers, prefix):
    out = {}
    def add(module, *shape, bias=True):
        out[module + ".weight"] = ["BF16", list(shape)]
        if bias: out[module + ".bias"] = ["BF16", [shape[0]]]
    def res(module, o, i):
        add(module + ".in_layers.0", i); add(module + ".in_layers.2", o, i, 3, 3); add(module + ".emb_layers.1", o, 1280)
        add(module + ".out_layers.0", o); add(module + ".out_layers.3", o, o, 3, 3)
        if o != i: add(module + ".skip_connection", o, i, 1, 1)
    def transformer(module, c):
        add(module + ".norm", c)
        for side in "proj_in", "proj_out": add(f"{module}.{side}", *((c, c) if linears else (c, c, 1, 1)))
        block = module + ".transformer_blocks.0."
        for norm in "norm1", "norm2", "norm3": add(block + norm, c)
        for attention, source in ("attn1.", c), ("attn2.", context):
            add(block + attention + "to_q", c, c, bias=False); add(block + attention + "to_out.0", c, c)
            for side in "to_k", "to_v": add(block + attention + side, c, source, bias=False)
        add(block + "ff.net.0.proj", 8 * c, c); add(block + "ff.net.2", c, 4 * c)
    root = "model.diffusion_model."
    add(root + "time_embed.0", 1280, 320); add(root + "time_embed.2", 1280, 1280)
    add(root + "input_blocks.0.0", 320, 4, 3, 3); add(root + "out.0", 320); add(root + "out.2", 4, 320, 3, 3)
    kept, c = [320], 320
    for level, o in enumerate((320, 640, 1280, 1280)):
        for i in 1, 2:
            block = f"{root}input_blocks.{3 * level + i}."
            res(block + "0", o, c); c = o; kept.append(c)
            if level < 3: transformer(block + "1", c)
        if level < 3: add(f"{root}input_blocks.{3 * level + 3}.0.op", c, c, 3, 3); kept.append(c)
    res(root + "middle_block.0", c, c); transformer(root + "middle_block.1", c); res(root + "middle_block.2", c, c)
    for i in range(12):
        block, o = f"{root}output_blocks.{i}.", (1280, 1280, 640, 320)[i // 3]
        res(block + "0", o, c + kept.pop()); c = o
        if i > 2: transformer(block + "1", c)
        if i in (2, 5, 8): add(block + ("1" if i == 2 else "2") + ".conv", c, c, 3, 3)
    text = prefix + "text_model."
    add(text + "embeddings.token_embedding", 49408, width, bias=False)
    add(text + "embeddings.position_embedding", 77, width, bias=False); add(text + "final_layer_norm", width)
    for i in range(layers):
        layer = f"{text}encoder.layers.{i}."
        for side in "q_proj", "k_proj", "v_proj", "out_proj": add(layer + "self_attn." + side, width, width)
        for norm in "layer_norm1", "layer_norm2": add(layer + norm, width)
        add(layer + "mlp.fc1", 4 * width, width); add(layer + "mlp.fc2", width, 4 * width)
    return {"tensors": out}
json.dump(tensors(768, False, 768, 12, "cond_stage_model.transformer."), open(sys.argv[1] + "/sd1.json", "w"))
json.dump(tensors(1024, True, 1024, 23, "text_encoders.clip_h.transformer."), open(sys.argv[1] + "/sd2.json", "w"))
EOF
while read -r file names; do
  paths=()
  for name in $names; do
    case $name in
      mistral | qwen_vision | qwen3_vision | qwen_image21 | qwen_image21_vae | flux1-fill-dev | chroma_radiance | sd_xl_inpainting_0.1 | sd1 | sd2 | anima | auraflow | qwen3_06b | wan_1_3b | wan_14b | wan_i2v_14b | wan21_i2v_14b | clip_vision | wan_5b | wan22_vae | umt5 | krea2 | ideogram4 | flux3 | lumina2 | omnigen2 | qwen25_3b | gemma2 | hidream | hidream_o1 | llama31 | clip_l_hidream | clip_g_hidream | ltx2 | gemma3 | hunyuan_image | hunyuan_image_vae | hunyuan_video | hunyuan_video_vae | hunyuan_video1 | hunyuan_video1_vae | llama3 | byt5 | ernie_image | ministral) paths+=("$work/$name.json") ;;
      pile_t5:*) paths+=("$work/${name%%:*}.json:${name#*:}") ;;
      *:*) paths+=("$lists/${name%%:*}.json:${name#*:}") ;;
      *) paths+=("$lists/$name.json") ;;
    esac
  done
  check "$file" hollow "$file.safetensors" "${paths[@]}"
done <<EOF
flux1-dev flux1-dev
flux1-kontext-dev flux1-dev
flux1-fill-dev flux1-fill-dev
flux1-schnell flux1-schnell
ae ae
clip_l clip_l
clip_g clip_g
t5xxl_fp16 t5xxl
flux2-dev flux2-dev
flux-2-klein-base-4b flux2-klein-4b
flux-2-klein-base-9b flux2-klein-9b
flux2-vae flux2_ae
mistral_3_small_flux2_bf16 mistral
flux-3-image-klein-base flux3
qwen3vl_4b_bf16 qwen_3_4b qwen3_vision
qwen_3_4b qwen_3_4b
qwen_3_8b qwen_3_8b
Chroma1-HD Chroma1-HD
Chroma1-Radiance-v0.4 chroma_radiance
qwen_image_bf16 qwen_image
qwen_image_vae qwen_image_vae
qwen_2.5_vl_7b qwen_2.5_vl_7b.text qwen_vision
qwen_image_edit_2511_bf16 qwen_image
qwen_image_2.1_bf16 qwen_image21
qwen_image_2.1_vae_bf16 qwen_image21_vae
qwen3vl_8b_bf16 qwen_3_8b
krea2_raw_bf16 krea2
lumina_2_model_bf16 lumina2
gemma_2_2b_fp16 gemma2
omnigen2_fp16 omnigen2
qwen_2.5_vl_fp16 qwen25_3b
ltx-2-19b-dev ltx2
gemma_3_12B_it gemma3
hidream_i1_full_fp16 hidream
hidream_o1_image_bf16 hidream_o1
clip_l_hidream clip_l_hidream
clip_g_hidream clip_g_hidream
llama_3.1_8b_instruct_fp8_scaled llama31
hunyuanimage2.1_bf16 hunyuan_image
hunyuan_image_2.1_vae_fp16 hunyuan_image_vae
hunyuan_video_t2v_720p_bf16 hunyuan_video1
hunyuan_video_vae_bf16 hunyuan_video1_vae
llava_llama3_fp16 llama3
hunyuanvideo1.5_480p_t2v_fp16 hunyuan_video
hunyuanvideo15_vae_fp16 hunyuan_video_vae
byt5_small_glyphxl_fp16 byt5
ernie-image ernie_image
ministral-3-3b ministral
ideogram4_fp8_scaled ideogram4
qwen3vl_8b_fp8_scaled qwen_3_8b
anima-base-v1.0 anima
aura_flow_0.3 auraflow pile_t5:text_encoders.pile_t5xl.transformer. sdxl_vae:first_stage_model.
qwen_3_06b_base qwen3_06b
wan2.1_t2v_1.3B_fp16 wan_1_3b
wan2.1_t2v_14B_fp16 wan_14b
wan2.2_t2v_high_noise_14B_fp16 wan_14b
wan2.2_t2v_low_noise_14B_fp16 wan_14b
wan2.2_i2v_high_noise_14B_fp16 wan_i2v_14b
wan2.1_i2v_480p_14B_fp16 wan21_i2v_14b
clip_vision_h clip_vision
umt5_xxl_fp16 umt5
wan_2.1_vae qwen_image_vae
wan2.2_ti2v_5B_fp16 wan_5b
wan2.2_vae wan22_vae
v1-5-pruned sd1 sdxl_vae:first_stage_model.
v2-1_768-ema-pruned sd2 sdxl_vae:first_stage_model.
sd3.5_large sd3.5_large ae:first_stage_model.
sd3.5_large_turbo sd3.5_large ae:first_stage_model.
sd3.5_medium sd3.5_medium ae:first_stage_model.
sd_xl_base_1.0 sd_xl_base_1.0 sd_xl_base_1.0.conditioner sdxl_vae:first_stage_model.
sd_xl_inpainting_0.1 sd_xl_inpainting_0.1 sd_xl_base_1.0.conditioner sdxl_vae:first_stage_model.
my_v_pred_model sd_xl_base_1.0 sd_xl_base_1.0.conditioner sdxl_vae:first_stage_model.
z_image_bf16 z_image
z_image_turbo_bf16 z_image
EOF
# A picture that is as large as the largest resolution, and one of another shape.
python3 - "$work/photos" <<'EOF'
import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for name, w, h in (("square", 1100, 1100), ("wide", 1600, 900)):
    rows = b"".join(b"\0" + bytes((x * y) % 251 for x in range(3 * w)) for y in range(h))
    with open(f"{sys.argv[1]}/{name}.png", "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    open(f"{sys.argv[1]}/{name}.txt", "w").write("a photo of a dog")
EOF
# A video of black frames, uncompressed, as large and as long as any of them takes.
mkdir "$work/clips"
python3 - "$work/clips" <<'EOF'
import struct, sys
def chunk(kind, data): return kind + struct.pack("<I", len(data)) + data
side, count, rate = 704, 52, 24
size = 3 * side * side
main = struct.pack("<14I", 1000000 // rate, 0, 0, 0, count, 0, 1, size, side, side, 0, 0, 0, 0)
stream = struct.pack("<4s11I2H", b"vids", 0, 0, 0, 0, 1, rate, 0, count, size, 2**32 - 1, 0, side, side)
shape = struct.pack("<3I2H6I", 40, side, side, 1, 24, 0, size, 0, 0, 0, 0)
streams = chunk(b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", shape))
head = chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + streams)
frames = 4 + count * (8 + size)
with open(f"{sys.argv[1]}/walk.avi", "wb") as out:
    out.write(b"RIFF" + struct.pack("<I", 4 + len(head) + 8 + frames) + b"AVI " + head)
    out.write(b"LIST" + struct.pack("<I4s", frames, b"movi"))
    for _ in range(count):
        out.write(b"00db" + struct.pack("<I", size))
        out.truncate(out.tell() + size)
        out.seek(0, 2)
with open(f"{sys.argv[1]}/walk.txt", "w") as out: out.write("a dog in the snow")
EOF
cp "$work/photos/wide.png" "$work/start.png"
cp -r "$work/photos" "$work/references"  # of the same names
cp -r "$work/photos" "$work/masks"
cp -r "$root/tests/data/mistral_small" "$work/models/FLUX.2-dev/tokenizer"
mkdir "$work/models/lumina2" && cp -r "$root/tests/data/gemma_small" "$work/models/lumina2/tokenizer"
mkdir "$work/models/AuraFlow-v0.3" && cp -r "$root/tests/data/pile_t5_small" "$work/models/AuraFlow-v0.3/tokenizer"
cp -r "$root/tests/data/gemma_small" "$work/models/gemma3_tokenizer"
cp -r "$root/tests/data/mistral_small" "$work/models/ernie_image_tokenizer"
cp -r "$root/tests/data/llama_small" "$work/models/llama3_tokenizer"
cp -r "$root/tests/data/llama_small" "$work/models/llama31_tokenizer"
cp -r "$root/share/tokenizers/t5" "$work/models/umt5_tokenizer"  # any vocabulary will do

fits() {  # fits CONFIG GB: all that is checked before a run, and a step within what such a card has for it
  local budget
  budget=$(awk "BEGIN { print $2 - 0.7 }")  # the rest is the driver's and a desktop's
  (cd "$work" && "$host" plan --config "$1" --card "$2 GB" --budget "$budget") >"$work/plan" 2>&1 || { cat "$work/plan"; return 1; }
  grep -E "^ +$budget GiB .*s$" "$work/plan" >"$work/row" || { cat "$work/plan"; return 1; }
}
for config in "$root"/examples/configs/*.yaml; do
  name=$(basename "$config" .yaml)
  check "$name" fits "$config" "$(sed 's/.*_\([0-9]*\)gb$/\1/' <<<"$name")"
  tail -n 1 "$work/row"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
