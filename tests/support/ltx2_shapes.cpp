// Names and shapes of LTX-2.
#include "support/ltx2_shapes.h"

#include <fmt/core.h>

#include "support/lumina2_shapes.h"
#include "support/model_shapes.h"

namespace lh::test {

namespace {

constexpr int64_t latent_channels = 128, head = 128, sound_head = 64;

void add_adaln(Shapes& shapes, const std::string& name, int64_t width, int64_t rows) {
  add_linear(shapes, name + ".emb.timestep_embedder.linear_1", width, 256);
  add_linear(shapes, name + ".emb.timestep_embedder.linear_2", width, width);
  add_linear(shapes, name + ".linear", rows * width, width);
}

// Widths of what asks and of what is seen, of all heads together and of one.
struct Attention {
  int64_t width, seen, inner, head;
};
void add_attention(Shapes& shapes, const std::string& name, const Attention& size, bool gated) {
  add_linear(shapes, name + ".to_q", size.inner, size.width);
  for (const char* part : {".to_k", ".to_v"}) add_linear(shapes, name + part, size.inner, size.seen);
  add_linear(shapes, name + ".to_out.0", size.width, size.inner);
  for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) shapes[name + norm] = {DType::bf16, {size.inner}};
  if (gated) add_linear(shapes, name + ".to_gate_logits", size.inner / size.head, size.width);
}

void add_feed_forward(Shapes& shapes, const std::string& name, int64_t width, bool bias = true) {
  add_linear(shapes, name + ".net.0.proj", 4 * width, width, bias);
  add_linear(shapes, name + ".net.2", width, 4 * width, bias);
}

}  // namespace

Shapes Ltx2Dit::shapes() const {
  const int64_t rows = gated ? 9 : 6;
  Shapes out;
  struct Stream {
    const char* prefix;
    int64_t width, head;
    bool bias;
  };
  for (const auto& [prefix, width, head_width, bias] :
       {Stream{"", hidden, head, !marked}, Stream{"audio_", sound, sound_head, true}}) {
    const std::string p = prefix;
    add_linear(out, p + "patchify_proj", width, latent_channels);
    add_linear(out, p + "proj_out", latent_channels, width);
    add_adaln(out, p + "adaln_single", width, rows);
    out[p + "scale_shift_table"] = {DType::bf16, {2, width}};
    if (gated) {
      add_adaln(out, p + "prompt_adaln_single", width, 2);
    } else {
      add_linear(out, p + "caption_projection.linear_1", width, text);
      add_linear(out, p + "caption_projection.linear_2", width, width);
    }
    for (int64_t i = 0; i < blocks; ++i) {
      const std::string block = fmt::format("transformer_blocks.{}.{}", i, p);
      for (const char* part : {"attn1", "attn2"})
        add_attention(out, block + part, {width, width, width, head_width}, gated);
      add_feed_forward(out, block + "ff", width, bias);
      out[block + "scale_shift_table"] = {DType::bf16, {rows, width}};
      if (gated) out[block + "prompt_scale_shift_table"] = {DType::bf16, {2, width}};
    }
  }
  if (marked) out["keyframes_abs_pos_embedding"] = {DType::bf16, {1, hidden}};
  add_adaln(out, "av_ca_video_scale_shift_adaln_single", hidden, 4);
  add_adaln(out, "av_ca_a2v_gate_adaln_single", hidden, 1);
  add_adaln(out, "av_ca_audio_scale_shift_adaln_single", sound, 4);
  add_adaln(out, "av_ca_v2a_gate_adaln_single", sound, 1);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    add_attention(out, block + "audio_to_video_attn", {hidden, sound, sound, sound_head}, gated);
    add_attention(out, block + "video_to_audio_attn", {sound, hidden, sound, sound_head}, gated);
    out[block + "scale_shift_table_a2v_ca_video"] = {DType::bf16, {5, hidden}};
    out[block + "scale_shift_table_a2v_ca_audio"] = {DType::bf16, {5, sound}};
  }
  return out;
}

void add_ltx2_connector(Shapes& shapes, const std::string& prefix, const Ltx2Connector& size) {
  shapes[prefix + "learnable_registers"] = {DType::bf16, {size.registers, size.width}};
  for (int64_t i = 0; i < size.blocks; ++i) {
    const std::string block = fmt::format("{}transformer_1d_blocks.{}.", prefix, i);
    add_attention(shapes, block + "attn1", {size.width, size.width, size.width, size.head}, size.gated);
    add_feed_forward(shapes, block + "ff", size.width);
  }
}

const Ltx2Vae small_ltx2_vae{{8, 16, 16, 32, 32}, {1, 1, 1, 1, 1}, {32, 16, 8, 8}, {1, 1, 1, 1}, {8, 8, 8}},
    full_ltx2_vae{{128, 256, 512, 1024, 2048}, {4, 6, 6, 2, 2}, {1024, 512, 256, 128}, {5, 5, 5, 5}, {8, 8, 8}},
    full_ltx23_vae{
        {128, 256, 512, 1024, 1024}, {4, 6, 4, 2, 2}, {1024, 512, 512, 256, 128}, {2, 2, 4, 6, 4}, {8, 8, 2, 4}};

void add_ltx2_vae(Shapes& shapes, const std::string& prefix, const Ltx2Vae& size) {
  const auto conv = [&](const std::string& name, int64_t out, int64_t in) {
    shapes[prefix + name + ".conv.weight"] = {DType::bf16, {out, in, 3, 3, 3}};
    shapes[prefix + name + ".conv.bias"] = {DType::bf16, {out}};
  };
  const auto side = [&](const std::string& parts, const std::vector<int64_t>& channels,
                        const std::vector<int64_t>& blocks, const auto& made) {
    for (size_t level = 0; level < channels.size(); ++level) {
      for (int64_t b = 0; b < blocks[level]; ++b)
        for (const char* part : {"conv1", "conv2"})
          conv(fmt::format("{}.{}.res_blocks.{}.{}", parts, 2 * level, b, part), channels[level], channels[level]);
      if (level + 1 < channels.size())
        conv(fmt::format("{}.{}.conv", parts, 2 * level + 1), made(level), channels[level]);
    }
  };
  constexpr int64_t pixels = 48, places[] = {4, 2, 8, 8};
  conv("encoder.conv_in", size.down.front(), pixels);
  side("encoder.down_blocks", size.down, size.down_blocks,
       [&](size_t level) { return size.down[level + 1] / places[level]; });
  conv("encoder.conv_out", latent_channels + 1, size.down.back());
  conv("decoder.conv_in", size.up.front(), latent_channels);
  side("decoder.up_blocks", size.up, size.up_blocks,
       [&](size_t level) { return size.up[level + 1] * size.up_places[level]; });
  conv("decoder.conv_out", pixels, size.up.back());
  for (const char* name : {"mean-of-means", "std-of-means"})
    shapes[prefix + "per_channel_statistics." + name] = {DType::bf16, {latent_channels}};
}

void add_ltx2_sound_vae(Shapes& shapes, const std::string& prefix, int64_t channels) {
  constexpr int64_t z = 8, levels = 3, stereo = 2;
  const auto conv = [&](const std::string& name, int64_t out, int64_t in, int64_t kernel = 3) {
    shapes[prefix + name + ".weight"] = {DType::bf16, {out, in, kernel, kernel}};
    shapes[prefix + name + ".bias"] = {DType::bf16, {out}};
  };
  const auto block = [&](const std::string& name, int64_t out, int64_t in) {
    conv(name + ".conv1.conv", out, in);
    conv(name + ".conv2.conv", out, out);
    if (out != in) conv(name + ".nin_shortcut.conv", out, in, 1);
  };
  for (const bool up : {false, true}) {
    const std::string side = up ? "decoder." : "encoder.";
    const int64_t most = channels << (levels - 1);
    int64_t width = up ? most : channels;
    conv(side + "conv_in.conv", width, up ? z : stereo);
    for (int64_t i = 0; i < levels; ++i) {
      const int64_t level = up ? levels - 1 - i : i;
      const std::string name = fmt::format("{}{}.{}", side, up ? "up" : "down", level);
      for (int64_t b = 0; b < (up ? 3 : 2); ++b) {
        block(fmt::format("{}.block.{}", name, b), channels << level, width);
        width = channels << level;
      }
      if (i + 1 < levels) conv(name + (up ? ".upsample.conv.conv" : ".downsample.conv"), width, width);
    }
    for (const char* middle : {"mid.block_1", "mid.block_2"}) block(side + middle, most, most);
    conv(side + "conv_out.conv", up ? stereo : 2 * z, width);
  }
  for (const char* name : {"mean-of-means", "std-of-means"})
    shapes[prefix + "per_channel_statistics." + name] = {DType::bf16, {latent_channels}};
}

void add_ltx2_vocoder(Shapes& shapes, const std::string& prefix, const Ltx2Voice& size) {
  constexpr int64_t bands = 64;
  const auto conv = [&](const std::string& name, const Shape& shape, int64_t bias) {
    shapes[name + ".weight"] = {DType::bf16, shape};
    if (bias > 0) shapes[name + ".bias"] = {DType::bf16, {bias}};
  };
  const auto act = [&](const std::string& name, int64_t channels) {
    for (const char* part : {".act.alpha", ".act.beta"}) shapes[name + part] = {DType::bf16, {channels}};
    for (const char* part : {".upsample.filter", ".downsample.lowpass.filter"})
      shapes[name + part] = {DType::bf16, {1, 1, 12}};
  };
  const auto network = [&](const std::string& root, int64_t channels, const std::vector<int64_t>& kernels) {
    conv(root + "conv_pre", {channels, 2 * bands, 7}, channels);
    for (size_t level = 0; level < kernels.size(); ++level) {
      conv(fmt::format("{}ups.{}", root, level), {channels, channels / 2, kernels[level]}, channels / 2);
      channels /= 2;
      for (const size_t kind : {0, 1, 2})
        for (const int i : {0, 1, 2})
          for (const int turn : {1, 2}) {
            const std::string block = fmt::format("{}resblocks.{}.", root, 3 * level + kind);
            const auto kernel = static_cast<int64_t>(4 * kind + 3);
            conv(fmt::format("{}convs{}.{}", block, turn, i), {channels, channels, kernel}, channels);
            if (size.second > 0) act(fmt::format("{}acts{}.{}", block, turn, i), channels);
          }
    }
    if (size.second > 0) act(root + "act_post", channels);
    conv(root + "conv_post", {2, channels, 7}, size.second > 0 ? 0 : 2);
  };
  if (size.second == 0) return network(prefix, size.first, {16, 15, 8, 4, 4});
  network(prefix + "vocoder.", size.first, {11, 4, 4, 4, 4, 4});
  network(prefix + "bwe_generator.", size.second, {12, 11, 4, 4, 4});
  for (const char* basis : {"forward_basis", "inverse_basis"})
    shapes[prefix + "mel_stft.stft_fn." + basis] = {DType::bf16, {514, 1, 512}};
  shapes[prefix + "mel_stft.mel_basis"] = {DType::bf16, {bands, 257}};
}

void add_gemma3(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t heads, int64_t inner,
                int64_t words) {
  add_gemma2(shapes, prefix, {width, layers, heads, inner, words});
  for (int64_t i = 0; i < layers; ++i)
    for (const char* norm : {"q_norm", "k_norm"})
      shapes[fmt::format("{}model.layers.{}.self_attn.{}.weight", prefix, i, norm)] = {DType::bf16, {256}};
}

void add_gemma4(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t heads, int64_t inner,
                int64_t words) {
  add_gemma3(shapes, prefix, width, layers, heads, inner, words);
  constexpr int64_t wide = 512;
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}model.layers.{}.", prefix, i), attention = layer + "self_attn.";
    shapes[layer + "layer_scalar"] = {DType::bf16, {1}};
    if ((i + 1) % 6 != 0) continue;
    add_linear(shapes, attention + "q_proj", wide * heads, width, false);
    add_linear(shapes, attention + "k_proj", wide, width, false);
    add_linear(shapes, attention + "o_proj", width, wide * heads, false);
    shapes.erase(attention + "v_proj.weight");
    for (const char* norm : {"q_norm", "k_norm"}) shapes[attention + norm + ".weight"] = {DType::bf16, {wide}};
  }
}

namespace {

constexpr int64_t small_words = 384, small_width = 64;

// All but Gemma and its projection.
Shapes small_file(const Ltx2Dit& size) {
  Shapes shapes;
  for (const auto& [name, desc] : size.shapes()) shapes["model.diffusion_model." + name] = desc;
  add_ltx2_connector(shapes, "model.diffusion_model.video_embeddings_connector.", {1, size.text, 8, size.gated});
  add_ltx2_connector(shapes, "model.diffusion_model.audio_embeddings_connector.",
                     {1, size.gated ? size.sound : size.text, 8, size.gated, size.gated ? sound_head : head});
  add_ltx2_vae(shapes, "vae.", small_ltx2_vae);
  add_ltx2_sound_vae(shapes, "audio_vae.", small_ltx2_sound);
  add_ltx2_vocoder(shapes, "vocoder.", size.gated ? small_ltx23_voice : small_ltx2_voice);
  return shapes;
}

}  // namespace

void write_small_ltx2(const std::filesystem::path& path) {
  constexpr int64_t layers = 2;
  Shapes shapes = small_file(small_ltx2);
  add_linear(shapes, "text_embedding_projection.aggregate_embed", small_ltx2.text, small_width * (layers + 1), false);
  add_gemma3(shapes, "text_encoders.gemma3_12b.transformer.", small_width, layers, 2, 96, small_words);
  write_file(path, filled(shapes));
}

void write_small_ltx25(const std::filesystem::path& path) {
  constexpr int64_t layers = 6;
  Shapes shapes = small_file(small_ltx25);
  for (const auto& [module, width] : {std::pair{"video", small_ltx25.text}, std::pair{"audio", small_ltx25.sound}})
    add_linear(shapes, fmt::format("text_embedding_projection.{}_aggregate_embed", module), width,
               small_width * (layers + 1));
  add_gemma4(shapes, "text_encoders.gemma4_12b.transformer.", small_width, layers, 2, 96, small_words);
  write_file(path, filled(shapes));
}

}  // namespace lh::test
