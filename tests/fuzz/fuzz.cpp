#include "fuzz/fuzz.h"

#include "fuzz/targets.h"

namespace lh::fuzz {
std::span<const Target> targets() {
  static const Target all[] = {
      {"safetensors", safetensors, safetensors_seeds, edit_safetensors, "safetensors.dict"},
      {"gguf", gguf, gguf_seeds},
      {"record", record, record_seeds, edit_sealed, "safetensors.dict"},
      {"state", state, state_seeds, edit_sealed, "safetensors.dict"},
      {"cache", cache, cache_seeds, edit_sealed, "safetensors.dict"},
      {"lora", lora, lora_seeds, edit_safetensors, "safetensors.dict"},
      {"index", shard_index, shard_index_seeds, edit_text},
      {"config", config, config_seeds, edit_text, "config.dict"},
      {"settings", settings, settings_seeds, edit_text, "config.dict"},
      {"history", history, history_seeds, edit_text, "config.dict"},
      {"request", request, request_seeds, edit_text, "config.dict"},
      {"caption", caption, caption_seeds},
      {"png", png, png_seeds},
      {"jpeg", jpeg, jpeg_seeds},
      {"webp", webp, webp_seeds},
      {"gif", gif, gif_seeds},
      {"bmp", bmp, bmp_seeds},
      {"tiff", tiff, tiff_seeds},
      {"heif", heif, heif_seeds, nullptr, {}, 2048},
      {"video", video, video_seeds, nullptr, {}, 4096},
      {"bpe", bpe, bpe_seeds, edit_text, "tokenizer.dict"},
      {"sentencepiece", sentencepiece, sentencepiece_seeds},
      {"note", note, note_seeds},
  };
  return all;
}

void require(bool holds, const char* promise) {
  if (!holds) throw Broken(promise);
}

}  // namespace lh::fuzz
