# Key lists of small models for lora-host make-checkpoint: JSON on standard output. For scripts that source this file.

tensor() { list+="${list:+, }\"$1\": [\"BF16\", [$2]]"; }
linear() { # linear MODULE OUT IN [no]: a weight and, unless "no", a bias
  tensor "$1.weight" "$2, $3"
  [ "${4:-}" = no ] || tensor "$1.bias" "$2"
}
print_keys() { echo "{\"tensors\": {$list}}"; }

chroma_keys() {
  local h=128 wide=32 list= side block
  linear img_in $h 64; linear txt_in $h 64
  linear distilled_guidance_layer.in_proj $wide 64; linear distilled_guidance_layer.out_proj $h $wide
  linear distilled_guidance_layer.layers.0.in_layer $wide $wide
  linear distilled_guidance_layer.layers.0.out_layer $wide $wide
  tensor distilled_guidance_layer.norms.0.scale $wide
  for side in img txt; do
    linear double_blocks.0.${side}_attn.qkv $((3 * h)) $h; linear double_blocks.0.${side}_attn.proj $h $h
    linear double_blocks.0.${side}_mlp.0 $((4 * h)) $h; linear double_blocks.0.${side}_mlp.2 $h $((4 * h))
  done
  linear single_blocks.0.linear1 $((7 * h)) $h; linear single_blocks.0.linear2 $h $((5 * h))
  for block in double_blocks.0.img_attn double_blocks.0.txt_attn single_blocks.0; do
    tensor $block.norm.query_norm.scale 128; tensor $block.norm.key_norm.scale 128
  done
  linear final_layer.linear 64 $h
  print_keys
}

qwen3_keys() { # qwen3_keys WIDTH LAYERS: with the real vocabulary, as all-in-one files have it
  local d=$1 root=text_encoders.qwen3_4b.transformer.model i layer norm
  tensor $root.embed_tokens.weight "151936, $d"; tensor $root.norm.weight $d
  for ((i = 0; i < $2; i++)); do
    layer=$root.layers.$i
    for norm in input_layernorm post_attention_layernorm; do tensor $layer.$norm.weight $d; done
    tensor $layer.self_attn.q_norm.weight 128; tensor $layer.self_attn.k_norm.weight 128
    linear $layer.self_attn.q_proj 256 $d no; linear $layer.self_attn.o_proj $d 256 no
    linear $layer.self_attn.k_proj 128 $d no; linear $layer.self_attn.v_proj 128 $d no
    linear $layer.mlp.gate_proj 128 $d no; linear $layer.mlp.up_proj 128 $d no
    linear $layer.mlp.down_proj $d 128 no
  done
}
golden_keys() { # golden_keys CASE: those of the weights of a golden case
  local list=
  list=$(sed -n '/"inputs": /q; s/^ *"\([^"]*\)": {"shape": \[\([0-9, ]*\)\], "\(offset\|values\)".*/"\1": ["F32", [\2]]/p' \
    "$1/case.json" | paste -sd,)
  print_keys
}

# With its text encoder.
z_image_keys() {
  local h=128 text=64 inner=192 time=256 list= block norm
  linear x_embedder $h 64; linear t_embedder.mlp.0 1024 $time; linear t_embedder.mlp.2 $time 1024
  tensor cap_embedder.0.weight $text; linear cap_embedder.1 $h $text
  tensor x_pad_token "1, $h"; tensor cap_pad_token "1, $h"
  linear final_layer.adaLN_modulation.1 $h $time; linear final_layer.linear 64 $h
  for block in layers.0 noise_refiner.0 context_refiner.0; do
    linear $block.attention.qkv $((3 * h)) $h no; linear $block.attention.out $h $h no
    tensor $block.attention.q_norm.weight 128; tensor $block.attention.k_norm.weight 128
    linear $block.feed_forward.w1 $inner $h no; linear $block.feed_forward.w3 $inner $h no
    linear $block.feed_forward.w2 $h $inner no
    for norm in attention_norm1 attention_norm2 ffn_norm1 ffn_norm2; do tensor $block.$norm.weight $h; done
    [ $block = context_refiner.0 ] || linear $block.adaLN_modulation.0 $((4 * h)) $time
  done
  qwen3_keys $text 2
  print_keys
}

# Flux.2 klein with its text encoder.
flux2_keys() {
  local h=128 text=32 inner=384 list= stream block
  linear img_in $h 128 no; linear txt_in $h $((3 * text)) no
  linear time_in.in_layer $h 256 no; linear time_in.out_layer $h $h no
  for stream in img txt; do
    linear double_stream_modulation_$stream.lin $((6 * h)) $h no
    linear double_blocks.0.${stream}_attn.qkv $((3 * h)) $h no; linear double_blocks.0.${stream}_attn.proj $h $h no
    linear double_blocks.0.${stream}_mlp.0 $((2 * inner)) $h no; linear double_blocks.0.${stream}_mlp.2 $h $inner no
  done
  linear single_stream_modulation.lin $((3 * h)) $h no
  linear single_blocks.0.linear1 $((3 * h + 2 * inner)) $h no; linear single_blocks.0.linear2 $h $((h + inner)) no
  for block in double_blocks.0.img_attn double_blocks.0.txt_attn single_blocks.0; do
    tensor $block.norm.query_norm.scale 128; tensor $block.norm.key_norm.scale 128
  done
  linear final_layer.adaLN_modulation.1 $((2 * h)) $h no; linear final_layer.linear 128 $h no
  qwen3_keys $text 4
  print_keys
}
