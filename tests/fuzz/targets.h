// The targets by name, for the table in fuzz.cpp.
#pragma once

#include "fuzz/fuzz.h"

namespace lh::fuzz {

#define LORA_FUZZ_TARGET(name) \
  bool name(Bytes input);      \
  std::vector<std::string> name##_seeds()

LORA_FUZZ_TARGET(safetensors);    // a file with tensors, of anybody
LORA_FUZZ_TARGET(gguf);           // the same in GGUF
LORA_FUZZ_TARGET(record);         // edits of a record, and whole ones with a valid seal
LORA_FUZZ_TARGET(state);          // a run's state
LORA_FUZZ_TARGET(cache);          // an entry of the caches
LORA_FUZZ_TARGET(lora);           // a LoRA file of any tool
LORA_FUZZ_TARGET(shard_index);    // model.safetensors.index.json
LORA_FUZZ_TARGET(config);         // a configuration
LORA_FUZZ_TARGET(settings);       // settings in a run's state
LORA_FUZZ_TARGET(history);        // history.jsonl
LORA_FUZZ_TARGET(request);        // a request of `lora-host ctl`
LORA_FUZZ_TARGET(caption);        // a caption file
LORA_FUZZ_TARGET(png);            //
LORA_FUZZ_TARGET(jpeg);           //
LORA_FUZZ_TARGET(webp);           //
LORA_FUZZ_TARGET(gif);            //
LORA_FUZZ_TARGET(bmp);            //
LORA_FUZZ_TARGET(tiff);           //
LORA_FUZZ_TARGET(heif);           // HEIC and AVIF
LORA_FUZZ_TARGET(video);          // of any format
LORA_FUZZ_TARGET(bpe);            // tokenizer.json, or vocab.json with merges.txt
LORA_FUZZ_TARGET(sentencepiece);  // spiece.model
LORA_FUZZ_TARGET(note);           // the note of a plugin

#undef LORA_FUZZ_TARGET

}  // namespace lh::fuzz
