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

# With its text encoder, which has the real vocabulary.
z_image_keys() {
  local h=128 text=64 inner=192 time=256 list= block norm root layer
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
  root=text_encoders.qwen3_4b.transformer.model
  tensor $root.embed_tokens.weight "151936, $text"; tensor $root.norm.weight $text
  for layer in $root.layers.0 $root.layers.1; do
    for norm in input_layernorm post_attention_layernorm; do tensor $layer.$norm.weight $text; done
    tensor $layer.self_attn.q_norm.weight 128; tensor $layer.self_attn.k_norm.weight 128
    linear $layer.self_attn.q_proj 256 $text no; linear $layer.self_attn.o_proj $text 256 no
    linear $layer.self_attn.k_proj 128 $text no; linear $layer.self_attn.v_proj 128 $text no
    linear $layer.mlp.gate_proj 128 $text no; linear $layer.mlp.up_proj 128 $text no
    linear $layer.mlp.down_proj $text 128 no
  done
  print_keys
}
