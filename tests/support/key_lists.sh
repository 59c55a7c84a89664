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

golden_keys() { # golden_keys CASE: those of the weights of a golden case
  local list=
  list=$(sed -n '/"inputs": /q; s/^ *"\([^"]*\)": {"shape": \[\([0-9, ]*\)\], "\(offset\|values\)".*/"\1": ["F32", [\2]]/p' \
    "$1/case.json" | paste -sd,)
  print_keys
}

qwen_layers() { # qwen_layers ROOT WIDTH QWEN [LAYERS]: a language model with the real vocabulary; QWEN is 2.5 or 3
  local root=$1 text=$2 i layer norm bias=
  tensor $root.embed_tokens.weight "151936, $text"; tensor $root.norm.weight $text
  [ "$3" = 2.5 ] || bias=no
  for ((i = 0; i < ${4:-2}; i++)); do
    layer=$root.layers.$i
    for norm in input_layernorm post_attention_layernorm; do tensor $layer.$norm.weight $text; done
    if [ "$3" = 3 ]; then tensor $layer.self_attn.q_norm.weight 128; tensor $layer.self_attn.k_norm.weight 128; fi
    linear $layer.self_attn.q_proj 256 $text $bias; linear $layer.self_attn.o_proj $text 256 no
    linear $layer.self_attn.k_proj 128 $text $bias; linear $layer.self_attn.v_proj 128 $text $bias
    linear $layer.mlp.gate_proj 128 $text no; linear $layer.mlp.up_proj 128 $text no
    linear $layer.mlp.down_proj $text 128 no
  done
}

# With its text encoder, which has the real vocabulary, and its autoencoder.
qwen_image_keys() {
  local h=128 text=64 inner=192 list= block name stream
  linear img_in $h 64; tensor txt_norm.weight $text; linear txt_in $h $text
  linear time_text_embed.timestep_embedder.linear_1 $h 256; linear time_text_embed.timestep_embedder.linear_2 $h $h
  linear norm_out.linear $((2 * h)) $h; linear proj_out 64 $h
  for block in transformer_blocks.0 transformer_blocks.1; do
    for name in to_q to_k to_v add_q_proj add_k_proj add_v_proj to_out.0 to_add_out; do linear $block.attn.$name $h $h; done
    for name in norm_q norm_k norm_added_q norm_added_k; do tensor $block.attn.$name.weight 128; done
    for stream in img txt; do
      linear $block.${stream}_mod.1 $((6 * h)) $h
      linear $block.${stream}_mlp.net.0.proj $inner $h; linear $block.${stream}_mlp.net.2 $h $inner
    done
  done
  qwen_layers text_encoders.qwen25_7b.transformer.model $text 2.5
  wan_keys vae 8
  print_keys
}

# The transformer of Krea 2: heads of 128, a quarter as many of keys as of queries; of the text as many.
krea2_transformer_keys() { # krea2_transformer_keys BLOCKS HIDDEN INNER TEXT TEXT_INNER STATES
  local h=$2 list= block width keys inner name
  linear first $h 64; linear tmlp.0 $h 256; linear tmlp.2 $h $h; linear tproj.1 $((6 * h)) $h
  linear txtfusion.projector 1 $6 no
  tensor txtmlp.0.scale $4; linear txtmlp.1 $h $4; linear txtmlp.3 $h $h
  linear last.linear 64 $h; tensor last.norm.scale $h; tensor last.modulation.lin "2, $h"
  for block in txtfusion.{layerwise,refiner}_blocks.{0,1} $(seq -f blocks.%g 0 $(($1 - 1))); do
    case $block in
      txt*) width=$4 keys=$4 inner=$5 ;;
      *) width=$h keys=$((h / 4)) inner=$3; tensor $block.mod.lin $((6 * h)) ;;
    esac
    tensor $block.prenorm.scale $width; tensor $block.postnorm.scale $width
    tensor $block.attn.qknorm.qnorm.scale 128; tensor $block.attn.qknorm.knorm.scale 128
    for name in wq gate wo; do linear $block.attn.$name $width $width no; done
    linear $block.attn.wk $keys $width no; linear $block.attn.wv $keys $width no
    linear $block.mlp.gate $inner $width no; linear $block.mlp.up $inner $width no; linear $block.mlp.down $width $inner no
  done
  print_keys
}

qwen_image21_transformer_keys() { # qwen_image21_transformer_keys BLOCKS HIDDEN TEXT
  local h=$2 list= block name
  linear img_in $h 64 no; tensor txt_in.text_norm.weight $3; linear txt_in.in_layer $h $3 no; linear txt_in.out_layer $h $h no
  linear time_text_embed.timestep_embedder.linear_1 $h 256 no; linear time_text_embed.timestep_embedder.linear_2 $h $h no
  linear modulation.1 $((4 * h)) $h no; linear norm_out.linear $h $h no; linear proj_out 64 $h no
  for block in $(seq -f transformer_blocks.%g 0 $(($1 - 1))); do
    for name in to_q to_k to_v to_out.0; do linear $block.attn.$name $h $h no; done
    for name in norm_q norm_k; do tensor $block.attn.$name.weight 128; done
    linear $block.img_mlp.gate_up $((6 * h)) $h no; linear $block.img_mlp.out $h $((3 * h)) no
  done
  print_keys
}
# Autoencoders whose levels have a way around them: Qwen-Image 2.1's, and Wan 2.2's, whose kernels go over time.
qwen_image21_vae_keys() { residual_vae_keys $1 $2 64 4 1 1 2 4 8 8; } # qwen_image21_vae_keys CHANNELS DECODER_CHANNELS
wan22_vae_keys() { residual_vae_keys $1 $2 48 12 3 1 2 4 4; } # wan22_vae_keys CHANNELS DECODER_CHANNELS
residual_vae_keys() { # residual_vae_keys CHANNELS DECODER_CHANNELS LATENTS COLOURS DEPTH MULTIPLE...: one for each level
  local list= c=$1 dec=$2 z=$3 colours=$4 depth=$5 side level at wide in out i
  local cube="$depth, 3, 3" time="$depth, 1, 1" multiples=("${@:6}")
  local last=$((${#multiples[@]} - 1)) most=${multiples[-1]}
  wan_conv conv1 $((2 * z)) $((2 * z)) "1, 1, 1"; wan_conv conv2 $z $z "1, 1, 1"
  wan_conv encoder.conv1 $c $colours "$cube"; wan_conv decoder.conv1 $((most * dec)) $z "$cube"
  for side in encoder decoder; do
    if [ $side = encoder ]; then wide=$((most * c)); else wide=$((most * dec)); fi
    wan_res $side.middle.0 $wide $wide $depth; wan_res $side.middle.2 $wide $wide $depth
    tensor $side.middle.1.norm.gamma "$wide, 1, 1"
    wan_conv $side.middle.1.to_qkv $((3 * wide)) $wide "1, 1"; wan_conv $side.middle.1.proj $wide $wide "1, 1"
  done
  in=$c
  for ((level = 0; level <= last; level++)); do
    out=$((multiples[level] * c)) at=encoder.downsamples.$level.downsamples
    wan_res $at.0 $out $in $depth; wan_res $at.1 $out $out $depth
    [ $level = $last ] || wan_conv $at.2.resample.1 $out $out "3, 3"
    if ((level > 0 && level < last)); then wan_conv $at.2.time_conv $out $out "$time"; fi
    in=$out
  done
  in=$((most * dec))
  for ((level = 0; level <= last; level++)); do
    out=$((multiples[last - level] * dec)) at=decoder.upsamples.$level.upsamples
    wan_res $at.0 $out $in $depth
    for i in 1 2; do wan_res $at.$i $out $out $depth; done
    [ $level = $last ] || wan_conv $at.3.resample.1 $out $out "3, 3"
    if ((level < last - 1)); then wan_conv $at.3.time_conv $((2 * out)) $out "$time"; fi
    in=$out
  done
  tensor encoder.head.0.gamma "$((most * c)), 1, 1, 1"; wan_conv encoder.head.2 $((2 * z)) $((most * c)) "$cube"
  tensor decoder.head.0.gamma "$dec, 1, 1, 1"; wan_conv decoder.head.2 $colours $dec "$cube"
  print_keys
}

# The transformer of Lumina 2 and Gemma 2.
lumina2_transformer_keys() { # lumina2_transformer_keys BLOCKS HIDDEN KEYS HEAD INNER TEXT TIME
  local h=$2 list= block name
  linear x_embedder $h 64; linear t_embedder.mlp.0 $7 256; linear t_embedder.mlp.2 $7 $7
  tensor cap_embedder.0.weight $6; linear cap_embedder.1 $h $6
  linear final_layer.adaLN_modulation.1 $h $7; linear final_layer.linear 64 $h; tensor norm_final.weight $h
  for block in {noise,context}_refiner.{0,1} $(seq -f layers.%g 0 $(($1 - 1))); do
    linear $block.attention.qkv $((h + 2 * $3)) $h no; linear $block.attention.out $h $h no
    tensor $block.attention.q_norm.weight $4; tensor $block.attention.k_norm.weight $4
    linear $block.feed_forward.w1 $5 $h no; linear $block.feed_forward.w2 $h $5 no; linear $block.feed_forward.w3 $5 $h no
    for name in attention_norm1 attention_norm2 ffn_norm1 ffn_norm2; do tensor $block.$name.weight $h; done
    case $block in context*) ;; *) linear $block.adaLN_modulation.1 $((4 * h)) $7 ;; esac
  done
  print_keys
}
# The transformer of OmniGen2.
omnigen2_transformer_keys() { # omnigen2_transformer_keys BLOCKS HIDDEN KEYS HEAD INNER TEXT TIME
  local h=$2 list= block name
  linear x_embedder $h 64; linear ref_image_patch_embedder $h 64; tensor image_index_embedding "5, $h"
  linear time_caption_embed.timestep_embedder.linear_1 $7 256; linear time_caption_embed.timestep_embedder.linear_2 $7 $7
  tensor time_caption_embed.caption_embedder.0.weight $6; linear time_caption_embed.caption_embedder.1 $h $6
  linear norm_out.linear_1 $h $7; linear norm_out.linear_2 64 $h
  for block in {noise,ref_image,context}_refiner.{0,1} $(seq -f layers.%g 0 $(($1 - 1))); do
    linear $block.attn.to_q $h $h no; linear $block.attn.to_k $3 $h no; linear $block.attn.to_v $3 $h no
    linear $block.attn.to_out.0 $h $h no
    tensor $block.attn.norm_q.weight $4; tensor $block.attn.norm_k.weight $4
    linear $block.feed_forward.linear_1 $5 $h no; linear $block.feed_forward.linear_2 $h $5 no
    linear $block.feed_forward.linear_3 $5 $h no
    for name in norm2 ffn_norm1 ffn_norm2; do tensor $block.$name.weight $h; done
    case $block in
      context*) tensor $block.norm1.weight $h ;;
      *) tensor $block.norm1.norm.weight $h; linear $block.norm1.linear $((4 * h)) $7 ;;
    esac
  done
  print_keys
}
gemma2_keys() { # gemma2_keys BLOCKS WIDTH QUERIES KEYS INNER WORDS [HEAD]: with norms of heads as wide, Gemma 3
  local list= block name
  tensor model.embed_tokens.weight "$6, $2"; tensor model.norm.weight $2
  for block in $(seq -f model.layers.%g 0 $(($1 - 1))); do
    for name in input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm; do
      tensor $block.$name.weight $2
    done
    for name in ${7:+q_norm k_norm}; do tensor $block.self_attn.$name.weight $7; done
    linear $block.self_attn.q_proj $3 $2 no; linear $block.self_attn.o_proj $2 $3 no
    linear $block.self_attn.k_proj $4 $2 no; linear $block.self_attn.v_proj $4 $2 no
    linear $block.mlp.gate_proj $5 $2 no; linear $block.mlp.up_proj $5 $2 no; linear $block.mlp.down_proj $2 $5 no
  done
  print_keys
}

# The published file of LTX-2.
ltx2_keys() { # ltx2_keys BLOCKS HIDDEN TEXT STATES: with text of as many states of Gemma 3
  local h=$2 sound=$(($2 / 2)) list= at block part name i level of width
  at=model.diffusion_model.
  ltx2_attention() { # ltx2_attention MODULE WIDTH SEEN INNER
    linear $1.to_q $4 $2; linear $1.to_k $4 $3; linear $1.to_v $4 $3; linear $1.to_out.0 $2 $4
    for part in q_norm k_norm; do tensor $1.$part.weight $4; done
  }
  ltx2_feed_forward() { linear $1.net.0.proj $((4 * $2)) $2; linear $1.net.2 $2 $((4 * $2)); }
  ltx2_adaln() { # ltx2_adaln MODULE WIDTH ROWS
    linear $1.emb.timestep_embedder.linear_1 $2 256; linear $1.emb.timestep_embedder.linear_2 $2 $2
    linear $1.linear $(($3 * $2)) $2
  }
  ltx2_conv() { tensor "$1.conv.weight" "$2, $3, 3, 3, 3"; tensor "$1.conv.bias" $2; }
  for of in "" audio_; do
    width=$h; [ -z "$of" ] || width=$sound
    linear $at${of}patchify_proj $width 128; linear $at${of}proj_out 128 $width; tensor $at${of}scale_shift_table "2, $width"
    ltx2_adaln $at${of}adaln_single $width 6
    linear $at${of}caption_projection.linear_1 $width $3; linear $at${of}caption_projection.linear_2 $width $width
    for block in $(seq -f ${at}transformer_blocks.%g.$of 0 $(($1 - 1))); do
      for name in attn1 attn2; do ltx2_attention $block$name $width $width $width; done
      ltx2_feed_forward ${block}ff $width; tensor ${block}scale_shift_table "6, $width"
    done
  done
  ltx2_adaln ${at}av_ca_video_scale_shift_adaln_single $h 4; ltx2_adaln ${at}av_ca_a2v_gate_adaln_single $h 1
  ltx2_adaln ${at}av_ca_audio_scale_shift_adaln_single $sound 4; ltx2_adaln ${at}av_ca_v2a_gate_adaln_single $sound 1
  for block in $(seq -f ${at}transformer_blocks.%g 0 $(($1 - 1))); do
    ltx2_attention $block.audio_to_video_attn $h $sound $sound; ltx2_attention $block.video_to_audio_attn $sound $h $sound
    tensor $block.scale_shift_table_a2v_ca_video "5, $h"; tensor $block.scale_shift_table_a2v_ca_audio "5, $sound"
  done
  for of in video audio; do
    at=model.diffusion_model.${of}_embeddings_connector.
    tensor ${at}learnable_registers "128, $3"
    for block in ${at}transformer_1d_blocks.{0,1}; do ltx2_attention $block.attn1 $3 $3 $3; ltx2_feed_forward $block.ff $3; done
  done
  linear text_embedding_projection.aggregate_embed $3 $(($3 * $4)) no
  local -a down=(128 256 512 1024 2048) blocks=(4 6 6 2 2) made=(64 256 128 256) up=(1024 512 256 128)
  ltx2_conv vae.encoder.conv_in 128 48; ltx2_conv vae.encoder.conv_out 129 2048
  ltx2_conv vae.decoder.conv_in 1024 128; ltx2_conv vae.decoder.conv_out 48 128
  for level in 0 1 2 3 4; do
    for ((i = 0; i < blocks[level]; i++)); do for name in conv1 conv2; do
      ltx2_conv vae.encoder.down_blocks.$((2 * level)).res_blocks.$i.$name ${down[level]} ${down[level]}
    done; done
    [ $level = 4 ] || ltx2_conv vae.encoder.down_blocks.$((2 * level + 1)).conv ${made[level]} ${down[level]}
  done
  for level in 0 1 2 3; do
    for i in 0 1 2 3 4; do for name in conv1 conv2; do
      ltx2_conv vae.decoder.up_blocks.$((2 * level)).res_blocks.$i.$name ${up[level]} ${up[level]}
    done; done
    [ $level = 3 ] || ltx2_conv vae.decoder.up_blocks.$((2 * level + 1)).conv $((8 * up[level + 1])) ${up[level]}
  done
  for name in mean-of-means std-of-means; do
    tensor vae.per_channel_statistics.$name 128; tensor audio_vae.per_channel_statistics.$name 128
  done
  ltx2_sound_vae_keys; ltx2_vocoder_keys 1024 16 15 8 4 4
  print_keys
}
ltx2_sound_vae_keys() { # the autoencoder of sound, into the caller's list
  local side level b width out
  ltx2_conv2() { tensor "$1.weight" "$2, $3, ${4:-3}, ${4:-3}"; tensor "$1.bias" $2; }
  ltx2_res() { # ltx2_res BLOCK OUT IN
    ltx2_conv2 $1.conv1.conv $2 $3; ltx2_conv2 $1.conv2.conv $2 $2
    [ $2 = $3 ] || ltx2_conv2 $1.nin_shortcut.conv $2 $3 1
  }
  for side in encoder decoder; do
    width=128; [ $side = encoder ] || width=512
    if [ $side = encoder ]; then ltx2_conv2 audio_vae.$side.conv_in.conv $width 2; else ltx2_conv2 audio_vae.$side.conv_in.conv $width 8; fi
    for level in 0 1 2; do
      local blocks="0 1" parts=down last=2
      [ $side = encoder ] || { level=$((2 - level)) blocks="0 1 2" parts=up last=0; }
      out=$((128 << level))
      for b in $blocks; do ltx2_res audio_vae.$side.$parts.$level.block.$b $out $width; width=$out; done
      [ $level = $last ] || case $side in
        encoder) ltx2_conv2 audio_vae.$side.down.$level.downsample.conv $width $width ;;
        decoder) ltx2_conv2 audio_vae.$side.up.$level.upsample.conv.conv $width $width ;;
      esac
    done
    for b in 1 2; do ltx2_res audio_vae.$side.mid.block_$b 512 512; done
    if [ $side = encoder ]; then ltx2_conv2 audio_vae.$side.conv_out.conv 16 $width; else ltx2_conv2 audio_vae.$side.conv_out.conv 2 $width; fi
  done
}
ltx2_vocoder_keys() { # ltx2_vocoder_keys CHANNELS KERNEL...: into the caller's list
  local width=$1 level=0 kind turn i kernel
  ltx2_conv1() { tensor "$1.weight" "$2, $3, $4"; tensor "$1.bias" $5; }
  ltx2_conv1 vocoder.conv_pre $width 128 7 $width
  for kernel in "${@:2}"; do
    ltx2_conv1 vocoder.ups.$level $width $((width / 2)) $kernel $((width / 2)); width=$((width / 2))
    for kind in 0 1 2; do for turn in 1 2; do for i in 0 1 2; do
      ltx2_conv1 vocoder.resblocks.$((3 * level + kind)).convs$turn.$i $width $width $((4 * kind + 3)) $width
    done; done; done
    level=$((level + 1))
  done
  ltx2_conv1 vocoder.conv_post 2 $width 7 2
}

# The transformer of ERNIE-Image.
ernie_image_keys() { # ernie_image_keys LAYERS HIDDEN INNER TEXT
  local h=$2 list= layer name
  tensor x_embedder.proj.weight "$h, 128, 1, 1"; tensor x_embedder.proj.bias $h; linear text_proj $h $4 no
  linear time_embedding.linear_1 $h $h; linear time_embedding.linear_2 $h $h; linear adaLN_modulation.1 $((6 * h)) $h
  linear final_norm.linear $((2 * h)) $h; linear final_linear 128 $h
  for layer in $(seq -f layers.%g 0 $(($1 - 1))); do
    for name in to_q to_k to_v to_out.0; do linear $layer.self_attention.$name $h $h no; done
    tensor $layer.self_attention.norm_q.weight 128; tensor $layer.self_attention.norm_k.weight 128
    for name in gate_proj up_proj; do linear $layer.mlp.$name $3 $h no; done
    linear $layer.mlp.linear_fc2 $h $3 no
    tensor $layer.adaLN_sa_ln.weight $h; tensor $layer.adaLN_mlp_ln.weight $h
  done
  print_keys
}

# The transformer of Ideogram 4: heads of 256, latents of 128 channels.
ideogram4_transformer_keys() { # ideogram4_transformer_keys BLOCKS HIDDEN INNER CONDITION TEXT
  local h=$2 list= block norm
  linear input_proj $h 128; tensor llm_cond_norm.weight $5; linear llm_cond_proj $h $5
  linear t_embedding.mlp_in $h $h; linear t_embedding.mlp_out $h $h; linear adaln_proj $4 $h
  tensor embed_image_indicator.weight "2, $h"
  linear final_layer.linear 128 $h; linear final_layer.adaln_modulation $h $4
  for block in $(seq -f layers.%g 0 $(($1 - 1))); do
    linear $block.attention.qkv $((3 * h)) $h no; linear $block.attention.o $h $h no
    tensor $block.attention.norm_q.weight 256; tensor $block.attention.norm_k.weight 256
    for norm in attention_norm1 attention_norm2 ffn_norm1 ffn_norm2; do tensor $block.$norm.weight $h; done
    linear $block.feed_forward.w1 $3 $h no; linear $block.feed_forward.w3 $3 $h no; linear $block.feed_forward.w2 $h $3 no
    linear $block.adaln_modulation $((4 * h)) $4
  done
  print_keys
}

# HiDream-O1-Image as ComfyUI has it: Qwen3-VL's language model with patches of 32 x 32 pixels at both ends.
hidream_o1_keys() { # hidream_o1_keys LAYERS HIDDEN KEYS INNER WORDS
  local h=$2 list= layer norm
  tensor language_model.embed_tokens.weight "$5, $h"; tensor language_model.norm.weight $h
  for layer in $(seq -f language_model.layers.%g 0 $(($1 - 1))); do
    linear $layer.self_attn.q_proj $h $h no; linear $layer.self_attn.o_proj $h $h no
    linear $layer.self_attn.k_proj $3 $h no; linear $layer.self_attn.v_proj $3 $h no
    for norm in q_norm k_norm; do tensor $layer.self_attn.$norm.weight 128; done
    linear $layer.mlp.gate_proj $4 $h no; linear $layer.mlp.up_proj $4 $h no; linear $layer.mlp.down_proj $h $4 no
    for norm in input_layernorm post_attention_layernorm; do tensor $layer.$norm.weight $h; done
  done
  linear t_embedder1.mlp.0 $h 256; linear t_embedder1.mlp.2 $h $h
  linear x_embedder.proj1 $((h / 4)) 3072 no; linear x_embedder.proj2 $h $((h / 4)); linear final_layer2.linear 3072 $h
  print_keys
}

# The transformers of HunyuanImage 2.1 and both HunyuanVideos under their original names, their autoencoders and their reader
# of glyphs.
hidream_transformer_keys() { # hidream_transformer_keys DOUBLES SINGLES HIDDEN T5 LLAMA POOLED EXPERT SHARED
  local h=$3 list= i kind ends end block name
  swiglu() { linear $1.w1 $2 $h no; linear $1.w3 $2 $h no; linear $1.w2 $h $2 no; } # swiglu MODULE INNER
  linear x_embedder.proj $h 64; linear final_layer.linear 64 $h; linear final_layer.adaLN_modulation.1 $((2 * h)) $h
  linear t_embedder.timestep_embedder.linear_1 $h 256; linear t_embedder.timestep_embedder.linear_2 $h $h
  linear p_embedder.pooled_embedder.linear_1 $h $6; linear p_embedder.pooled_embedder.linear_2 $h $h
  for ((i = 0; i < $1 + $2; i++)); do
    linear caption_projection.$i.linear $h $5 no
    if ((i < $1)); then kind=double block=double_stream_blocks.$i.block; else kind=single block=single_stream_blocks.$((i - $1)).block; fi
    linear $block.adaLN_modulation.1 $(((i < $1 ? 12 : 6) * h)) $h
    ends=("")
    [ $kind = single ] || ends+=(_t)
    for end in "${ends[@]}"; do
      for name in to_q to_k to_v to_out; do linear $block.attn1.$name$end $h $h; done
      for name in q_rms_norm k_rms_norm; do tensor $block.attn1.$name$end.weight $h; done
    done
    tensor $block.ff_i.gate.weight "4, $h"
    for name in experts.{0,1,2,3}; do swiglu $block.ff_i.$name $7; done
    swiglu $block.ff_i.shared_experts $8
    [ $kind = single ] || swiglu $block.ff_t $7
  done
  linear caption_projection.$i.linear $h $4 no
  print_keys
}
hunyuan_image_transformer_keys() { # hunyuan_image_transformer_keys DOUBLES SINGLES HIDDEN TEXT GLYPHS
  local list=
  tensor img_in.proj.weight "$3, 64, 1, 1"; linear final_layer.linear 64 $3
  hunyuan_transformer_keys "$@"
}
hunyuan_video_transformer_keys() { # hunyuan_video_transformer_keys BLOCKS HIDDEN TEXT GLYPHS
  local list= name
  tensor img_in.proj.weight "$2, 65, 1, 1, 1"; linear final_layer.linear 32 $2; tensor cond_type_embedding.weight "3, $2"
  for name in weight bias; do tensor vision_in.proj.0.$name 1152; tensor vision_in.proj.4.$name $2; done
  linear vision_in.proj.1 1152 1152; linear vision_in.proj.3 $2 1152
  hunyuan_transformer_keys $1 0 $2 $3 $4
}
hunyuan_video1_transformer_keys() { # hunyuan_video1_transformer_keys DOUBLES SINGLES HIDDEN TEXT POOLED
  local list=
  tensor img_in.proj.weight "$3, 16, 1, 2, 2"; linear final_layer.linear 64 $3
  linear vector_in.in_layer $3 $5; linear vector_in.out_layer $3 $3
  linear guidance_in.mlp.0 $3 256; linear guidance_in.mlp.2 $3 $3
  hunyuan_transformer_keys $1 $2 $3 $4
}
hunyuan_transformer_keys() { # with glyphs where they have a width
  local h=$3 block side name
  tensor img_in.proj.bias $h
  if [ $# = 5 ]; then
    tensor byt5_in.layernorm.weight $5; tensor byt5_in.layernorm.bias $5
    linear byt5_in.fc1 2048 $5; linear byt5_in.fc2 2048 2048; linear byt5_in.fc3 $h 2048
  fi
  linear txt_in.input_embedder $h $4; linear txt_in.c_embedder.linear_1 $h $4; linear txt_in.c_embedder.linear_2 $h $h
  for name in time_in txt_in.t_embedder; do linear $name.mlp.0 $h 256; linear $name.mlp.2 $h $h; done
  for block in txt_in.individual_token_refiner.blocks.{0,1}; do
    for name in norm1 norm2; do tensor $block.$name.weight $h; tensor $block.$name.bias $h; done
    linear $block.self_attn_qkv $((3 * h)) $h; linear $block.self_attn_proj $h $h
    linear $block.mlp.fc1 $((4 * h)) $h; linear $block.mlp.fc2 $h $((4 * h)); linear $block.adaLN_modulation.1 $((2 * h)) $h
  done
  for block in $(seq -f double_blocks.%g 0 $(($1 - 1))); do
    for side in $block.img $block.txt; do
      linear ${side}_mod.linear $((6 * h)) $h; linear ${side}_attn_qkv $((3 * h)) $h; linear ${side}_attn_proj $h $h
      linear ${side}_mlp.fc1 $((4 * h)) $h; linear ${side}_mlp.fc2 $h $((4 * h))
      tensor ${side}_attn_q_norm.weight 128; tensor ${side}_attn_k_norm.weight 128
    done
  done
  for block in $(seq -f single_blocks.%g 0 $(($2 - 1))); do
    linear $block.linear1 $((7 * h)) $h; linear $block.linear2 $h $((5 * h)); linear $block.modulation.linear $((3 * h)) $h
    tensor $block.q_norm.weight 128; tensor $block.k_norm.weight 128
  done
  linear final_layer.adaLN_modulation.1 $((2 * h)) $h
  print_keys
}
conv() { tensor "$1.weight" "$2, $3, $4, $4"; tensor "$1.bias" $2; } # conv MODULE OUT IN KERNEL
hunyuan_image_vae_keys() { # hunyuan_image_vae_keys CHANNELS: levels of 1, 2, 4, 4, 8 and 8 times that
  local list= side level i at next name
  local -a wide=($1 $((2 * $1)) $((4 * $1)) $((4 * $1)) $((8 * $1)) $((8 * $1)))
  shuffle_res() { # shuffle_res MODULE CHANNELS
    for name in norm1 norm2; do tensor $1.$name.weight $2; tensor $1.$name.bias $2; done
    conv $1.conv1 $2 $2 3; conv $1.conv2 $2 $2 3
  }
  for side in encoder decoder; do
    shuffle_res $side.mid.block_1 ${wide[5]}; shuffle_res $side.mid.block_2 ${wide[5]}
    tensor $side.mid.attn_1.norm.weight ${wide[5]}; tensor $side.mid.attn_1.norm.bias ${wide[5]}
    for name in q k v proj_out; do conv $side.mid.attn_1.$name ${wide[5]} ${wide[5]} 1; done
  done
  for level in 0 1 2 3 4 5; do
    for i in 0 1; do shuffle_res encoder.down.$level.block.$i ${wide[level]}; done
    for i in 0 1 2; do shuffle_res decoder.up.$level.block.$i ${wide[5 - level]}; done
    [ $level = 5 ] && continue
    conv encoder.down.$level.downsample.conv $((${wide[level + 1]} / 4)) ${wide[level]} 3
    conv decoder.up.$level.upsample.conv $((4 * ${wide[4 - level]})) ${wide[5 - level]} 3
  done
  conv encoder.conv_in $1 3 3; conv decoder.conv_in ${wide[5]} 64 3
  tensor encoder.norm_out.weight ${wide[5]}; tensor encoder.norm_out.bias ${wide[5]}; conv encoder.conv_out 128 ${wide[5]} 3
  tensor decoder.norm_out.weight $1; tensor decoder.norm_out.bias $1; conv decoder.conv_out 3 $1 3
  print_keys
}
hunyuan_video_vae_keys() { # hunyuan_video_vae_keys CHANNELS: levels of 1, 2, 4, 8 and 8 times that
  local list= side level i name down up
  local -a wide=($1 $((2 * $1)) $((4 * $1)) $((8 * $1)) $((8 * $1)))
  conv3() { tensor "$1.weight" "$2, $3, $4, $4, $4"; tensor "$1.bias" $2; } # conv3 MODULE OUT IN KERNEL
  video_res() { # video_res MODULE CHANNELS
    for name in 1 2; do tensor $1.norm$name.gamma "$2, 1, 1, 1"; conv3 $1.conv$name.conv $2 $2 3; done
  }
  for side in encoder decoder; do
    video_res $side.mid.block_1 ${wide[4]}; video_res $side.mid.block_2 ${wide[4]}
    tensor $side.mid.attn_1.norm.gamma "${wide[4]}, 1, 1, 1"
    for name in q k v proj_out; do conv3 $side.mid.attn_1.$name ${wide[4]} ${wide[4]} 1; done
  done
  for level in 0 1 2 3 4; do
    for i in 0 1; do video_res encoder.down.$level.block.$i ${wide[level]}; done
    for i in 0 1 2; do video_res decoder.up.$level.block.$i ${wide[4 - level]}; done
    [ $level = 4 ] && continue
    if [ $level -ge 2 ]; then down=8 up=4; else down=4 up=8; fi
    conv3 encoder.down.$level.downsample.conv.conv $((${wide[level + 1]} / down)) ${wide[level]} 3
    conv3 decoder.up.$level.upsample.conv.conv $((up * ${wide[3 - level]})) ${wide[4 - level]} 3
  done
  conv3 encoder.conv_in.conv $1 3 3; conv3 decoder.conv_in.conv ${wide[4]} 32 3
  tensor encoder.norm_out.gamma "${wide[4]}, 1, 1, 1"; conv3 encoder.conv_out.conv 64 ${wide[4]} 3
  tensor decoder.norm_out.gamma "$1, 1, 1, 1"; conv3 decoder.conv_out.conv 3 $1 3
  print_keys
}
hunyuan_video1_vae_keys() { # hunyuan_video1_vae_keys CHANNELS: levels of 1, 2, 4 and 4 times that
  local list= side name level i at to
  local -a wide=($1 $((2 * $1)) $((4 * $1)) $((4 * $1)))
  conv3() { tensor "$1.weight" "$2, $3, $4, $4, $4"; tensor "$1.bias" $2; } # conv3 MODULE OUT IN KERNEL
  norm() { tensor $1.weight $2; tensor $1.bias $2; }                        # norm MODULE CHANNELS
  video1_res() { # video1_res MODULE OUT IN
    norm $1.norm1 $3; norm $1.norm2 $2; conv3 $1.conv1.conv $2 $3 3; conv3 $1.conv2.conv $2 $2 3
    [ $2 = $3 ] || conv3 $1.conv_shortcut.conv $2 $3 1
  }
  for side in encoder decoder; do
    video1_res $side.mid_block.resnets.0 ${wide[3]} ${wide[3]}; video1_res $side.mid_block.resnets.1 ${wide[3]} ${wide[3]}
    norm $side.mid_block.attentions.0.group_norm ${wide[3]}
    for name in to_q to_k to_v to_out.0; do linear $side.mid_block.attentions.0.$name ${wide[3]} ${wide[3]}; done
  done
  at=$1
  for level in 0 1 2 3; do
    to=${wide[level]}
    for i in 0 1; do video1_res encoder.down_blocks.$level.resnets.$i $to $at; at=$to; done
    [ $level = 3 ] || conv3 encoder.down_blocks.$level.downsamplers.0.conv.conv $to $to 3
  done
  for level in 0 1 2 3; do
    to=${wide[3 - level]}
    for i in 0 1 2; do video1_res decoder.up_blocks.$level.resnets.$i $to $at; at=$to; done
    [ $level = 3 ] || conv3 decoder.up_blocks.$level.upsamplers.0.conv.conv $to $to 3
  done
  conv3 encoder.conv_in.conv $1 3 3; norm encoder.conv_norm_out ${wide[3]}; conv3 encoder.conv_out.conv 32 ${wide[3]} 3
  conv3 decoder.conv_in.conv ${wide[3]} 16 3; norm decoder.conv_norm_out $1; conv3 decoder.conv_out.conv 3 $1 3
  conv3 quant_conv 32 32 1; conv3 post_quant_conv 16 16 1
  print_keys
}
byt5_keys() { # byt5_keys BLOCKS WIDTH HEADS INNER WORDS
  local list= block name
  tensor shared.weight "$5, $2"; tensor encoder.final_layer_norm.weight $2
  tensor encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "32, $3"
  for block in $(seq -f encoder.block.%g.layer 0 $(($1 - 1))); do
    tensor $block.0.layer_norm.weight $2; tensor $block.1.layer_norm.weight $2
    for name in q k v; do linear $block.0.SelfAttention.$name $((64 * $3)) $2 no; done
    linear $block.0.SelfAttention.o $2 $((64 * $3)) no
    linear $block.1.DenseReluDense.wi_0 $4 $2 no; linear $block.1.DenseReluDense.wi_1 $4 $2 no; linear $block.1.DenseReluDense.wo $2 $4 no
  done
  print_keys
}

# The transformer of Wan and its text encoder.
wan_transformer_keys() { # wan_transformer_keys BLOCKS HIDDEN INNER TEXT [CHANNELS [SHOWN [IMAGE]]]: of the latents, 16 unless given
  local h=$2 channels=${5:-16} list= block part name
  tensor patch_embedding.weight "$h, $((channels + ${6:-0})), 1, 2, 2"; tensor patch_embedding.bias $h
  linear text_embedding.0 $h $4; linear text_embedding.2 $h $h
  linear time_embedding.0 $h 256; linear time_embedding.2 $h $h; linear time_projection.1 $((6 * h)) $h
  linear head.head $((4 * channels)) $h; tensor head.modulation "1, 2, $h"
  for block in $(seq -f blocks.%g 0 $(($1 - 1))); do
    for part in self_attn cross_attn; do
      for name in q k v o; do linear $block.$part.$name $h $h; done
      tensor $block.$part.norm_q.weight $h; tensor $block.$part.norm_k.weight $h
    done
    tensor $block.norm3.weight $h; tensor $block.norm3.bias $h; tensor $block.modulation "1, 6, $h"
    linear $block.ffn.0 $3 $h; linear $block.ffn.2 $h $3
    [ -n "${7:-}" ] || continue
    for name in k_img v_img; do linear $block.cross_attn.$name $h $h; done
    tensor $block.cross_attn.norm_k_img.weight $h
  done
  if [ -n "${7:-}" ]; then
    for name in "0 $7" "4 $h"; do
      tensor img_emb.proj.${name% *}.weight ${name#* }; tensor img_emb.proj.${name% *}.bias ${name#* }
    done
    linear img_emb.proj.1 $7 $7; linear img_emb.proj.3 $h $7
  fi
  print_keys
}
clip_vision_keys() { # clip_vision_keys LAYERS WIDTH INNER PATCH PLACES
  local list= layer name root=vision_model
  tensor $root.embeddings.class_embedding $2; tensor $root.embeddings.patch_embedding.weight "$2, 3, $4, $4"
  tensor $root.embeddings.position_embedding.weight "$5, $2"
  for name in pre_layrnorm post_layernorm; do tensor $root.$name.weight $2; tensor $root.$name.bias $2; done
  for layer in $(seq -f $root.encoder.layers.%g 0 $(($1 - 1))); do
    for name in q k v out; do linear $layer.self_attn.${name}_proj $2 $2; done
    linear $layer.mlp.fc1 $3 $2; linear $layer.mlp.fc2 $2 $3
    for name in layer_norm1 layer_norm2; do tensor $layer.$name.weight $2; tensor $layer.$name.bias $2; done
  done
  print_keys
}
umt5_keys() { # umt5_keys BLOCKS WIDTH INNER WORDS
  local list= block name
  tensor shared.weight "$4, $2"; tensor encoder.final_layer_norm.weight $2
  for block in $(seq -f encoder.block.%g.layer 0 $(($1 - 1))); do
    for name in q k v; do linear $block.0.SelfAttention.$name $2 $2 no; done
    linear $block.0.SelfAttention.o $2 $2 no
    tensor $block.0.SelfAttention.relative_attention_bias.weight "32, $(($2 / 64))"
    linear $block.1.DenseReluDense.wi_0 $3 $2 no; linear $block.1.DenseReluDense.wi_1 $3 $2 no
    linear $block.1.DenseReluDense.wo $2 $3 no
    tensor $block.0.layer_norm.weight $2; tensor $block.1.layer_norm.weight $2
  done
  print_keys
}

# The transformer of AuraFlow; PLACES: of its grid of positions.
auraflow_transformer_keys() { # auraflow_transformer_keys DOUBLES SINGLES HIDDEN INNER TEXT PLACES
  local h=$3 list= block mods mod attention name
  linear init_x_linear $h 16; linear t_embedder.mlp.0 $h 256; linear t_embedder.mlp.2 $h $h; linear cond_seq_linear $h $5 no
  linear modF.1 $((2 * h)) $h no; linear final_linear 16 $h no
  tensor positional_encoding "1, $6, $h"; tensor register_tokens "1, 8, $h"
  for block in $(seq -f double_layers.%g 0 $(($1 - 1))) $(seq -f single_layers.%g 0 $(($2 - 1))); do
    case $block in double*) mods="X C" ;; *) mods=CX ;; esac
    for mod in $mods; do
      case $mod in X) attention=w2 name=mlpX ;; C) attention=w1 name=mlpC ;; CX) attention=w1 name=mlp ;; esac
      linear $block.mod$mod.1 $((6 * h)) $h no
      linear $block.attn.${attention}q $h $h no; linear $block.attn.${attention}k $h $h no
      linear $block.attn.${attention}v $h $h no; linear $block.attn.${attention}o $h $h no
      linear $block.$name.c_fc1 $4 $h no; linear $block.$name.c_fc2 $4 $h no; linear $block.$name.c_proj $h $4 no
    done
  done
  print_keys
}

# The transformer of Anima with its adapter, whose width is that of the text.
anima_keys() { # anima_keys BLOCKS HIDDEN INNER WAIST ADAPTER_BLOCKS TEXT WORDS
  local h=$2 text=$6 list= block part name seen
  linear x_embedder.proj.1 $h 68 no; tensor t_embedding_norm.weight $h
  linear t_embedder.1.linear_1 $h $h no; linear t_embedder.1.linear_2 $((3 * h)) $h no
  linear final_layer.linear 64 $h no
  linear final_layer.adaln_modulation.1 $4 $h no; linear final_layer.adaln_modulation.2 $((2 * h)) $4 no
  for block in $(seq -f blocks.%g 0 $(($1 - 1))); do
    for part in self_attn cross_attn; do
      [ $part = self_attn ] && seen=$h || seen=$text
      for name in q_proj output_proj; do linear $block.$part.$name $h $h no; done
      for name in k_proj v_proj; do linear $block.$part.$name $h $seen no; done
      tensor $block.$part.q_norm.weight 128; tensor $block.$part.k_norm.weight 128
    done
    linear $block.mlp.layer1 $3 $h no; linear $block.mlp.layer2 $h $3 no
    for part in self_attn cross_attn mlp; do
      linear $block.adaln_modulation_$part.1 $4 $h no; linear $block.adaln_modulation_$part.2 $((3 * h)) $4 no
    done
  done
  tensor llm_adapter.embed.weight "$7, $text"
  for block in $(seq -f llm_adapter.blocks.%g 0 $(($5 - 1))); do
    for part in self_attn cross_attn; do
      for name in q_proj k_proj v_proj o_proj; do linear $block.$part.$name $text $text no; done
      tensor $block.$part.q_norm.weight 64; tensor $block.$part.k_norm.weight 64; tensor $block.norm_$part.weight $text
    done
    tensor $block.norm_mlp.weight $text; linear $block.mlp.0 $((4 * text)) $text; linear $block.mlp.2 $text $((4 * text))
  done
  linear llm_adapter.out_proj $text $text; tensor llm_adapter.norm.weight $text
  print_keys
}

wan_conv() { tensor $1.weight "$2, $3, $4"; tensor $1.bias $2; } # wan_conv MODULE OUT IN KERNEL
wan_res() { # wan_res MODULE OUT IN [DEPTH]: of kernels over time, 3 unless given
  tensor $1.residual.0.gamma "$3, 1, 1, 1"; wan_conv $1.residual.2 $2 $3 "${4:-3}, 3, 3"
  tensor $1.residual.3.gamma "$2, 1, 1, 1"; wan_conv $1.residual.6 $2 $2 "${4:-3}, 3, 3"
  [ $2 = $3 ] || wan_conv $1.shortcut $2 $3 "1, 1, 1"
}
# The autoencoder of Wan 2.1: levels of 1, 2, 4 and 4 times CHANNELS.
wan_keys() { # wan_keys PREFIX CHANNELS
  local c=$2 side part=0 level in out
  wan_conv $1.conv1 32 32 "1, 1, 1"; wan_conv $1.conv2 16 16 "1, 1, 1"
  wan_conv $1.encoder.conv1 $c 3 "3, 3, 3"; wan_conv $1.decoder.conv1 $((4 * c)) 16 "3, 3, 3"
  for side in encoder decoder; do
    wan_res $1.$side.middle.0 $((4 * c)) $((4 * c)); wan_res $1.$side.middle.2 $((4 * c)) $((4 * c))
    tensor $1.$side.middle.1.norm.gamma "$((4 * c)), 1, 1"
    wan_conv $1.$side.middle.1.to_qkv $((12 * c)) $((4 * c)) "1, 1"; wan_conv $1.$side.middle.1.proj $((4 * c)) $((4 * c)) "1, 1"
  done
  in=$c
  for level in 1 2 4 4; do
    out=$((level * c))
    wan_res $1.encoder.downsamples.$part $out $in; wan_res $1.encoder.downsamples.$((part + 1)) $out $out
    [ $part = 9 ] || wan_conv $1.encoder.downsamples.$((part + 2)).resample.1 $out $out "3, 3"
    case $part in 3 | 6) wan_conv $1.encoder.downsamples.$((part + 2)).time_conv $out $out "3, 1, 1" ;; esac
    in=$out part=$((part + 3))
  done
  part=0
  for level in 4 4 2 1; do
    out=$((level * c))
    wan_res $1.decoder.upsamples.$part $out $in
    wan_res $1.decoder.upsamples.$((part + 1)) $out $out; wan_res $1.decoder.upsamples.$((part + 2)) $out $out
    [ $part = 12 ] || wan_conv $1.decoder.upsamples.$((part + 3)).resample.1 $((out / 2)) $out "3, 3"
    case $part in 0 | 4) wan_conv $1.decoder.upsamples.$((part + 3)).time_conv $((2 * out)) $out "3, 1, 1" ;; esac
    in=$((out / 2)) part=$((part + 4))
  done
  tensor $1.encoder.head.0.gamma "$((4 * c)), 1, 1, 1"; wan_conv $1.encoder.head.2 32 $((4 * c)) "3, 3, 3"
  tensor $1.decoder.head.0.gamma "$c, 1, 1, 1"; wan_conv $1.decoder.head.2 3 $c "3, 3, 3"
}

# With its text encoder, which has the real vocabulary.
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
  qwen_layers text_encoders.qwen3_4b.transformer.model $text 3
  print_keys
}

flux3_transformer_keys() { # flux3_transformer_keys HIDDEN TEXT MODE_BLOCKS SINGLE_BLOCKS
  local h=$1 list= mode i block
  linear time_in.in_layer $h 256 no; linear time_in.out_layer $h $h no; linear txt_in $h $2 no
  linear final_layer.image.adaLN_modulation.1 $((2 * h)) $h no; linear final_layer.image.linear 128 $h no
  for mode in image image_cond; do linear emb_in.$mode $h 128 no; done
  for mode in image image_cond txt; do
    linear early_stream_modulations.$mode.lin $((3 * h)) $h no; linear single_stream_modulations.$mode.lin $((3 * h)) $h no
  done
  for block in $(for ((i = 0; i < $3; i++)); do echo {content_mode_blocks.image,content_mode_blocks.image_cond,txt_mode_blocks}.$i; done) \
    $(for ((i = 0; i < $4; i++)); do echo single_blocks.$i; done); do
    for i in q_proj k_proj v_proj attn_out; do linear $block.$i $h $h no; done
    linear $block.mlp_in $((6 * h)) $h no; linear $block.mlp_out $h $((3 * h)) no
    tensor $block.norm.query_norm.scale 128; tensor $block.norm.key_norm.scale 128
  done
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
  qwen_layers text_encoders.qwen3_4b.transformer.model $text 3 4
  print_keys
}
