#include "fuzz/fuzz.h"

#include "fuzz/targets.h"

namespace lh::fuzz {
std::span<const Target> targets() {
  static const Target all[] = {
      {"safetensors", safetensors, safetensors_seeds, "safetensors.dict"},
      {"record", record, record_seeds, "safetensors.dict"},
      {"state", state, state_seeds, "safetensors.dict"},
      {"cache", cache, cache_seeds, "safetensors.dict"},
      {"lora", lora, lora_seeds, "safetensors.dict"},
      {"index", shard_index, shard_index_seeds},
      {"config", config, config_seeds, "config.dict"},
      {"settings", settings, settings_seeds, "config.dict"},
      {"history", history, history_seeds, "config.dict"},
      {"request", request, request_seeds, "config.dict"},
      {"caption", caption, caption_seeds},
      {"png", png, png_seeds},
      {"jpeg", jpeg, jpeg_seeds},
      {"webp", webp, webp_seeds},
      {"bpe", bpe, bpe_seeds, "tokenizer.dict"},
      {"sentencepiece", sentencepiece, sentencepiece_seeds},
      {"note", note, note_seeds},
  };
  return all;
}

void require(bool holds, const char* promise) {
  if (!holds) throw Broken(promise);
}

}  // namespace lh::fuzz
