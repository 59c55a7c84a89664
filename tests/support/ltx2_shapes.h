// LTX-2, LTX-2.3 and LTX-2.5 in any size, by the names of their published files; and small whole models in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct Ltx2Dit {
  int64_t blocks, hidden, text;
  bool gated = false;    // from LTX-2.3 on: gates, modulated text and no projection of it
  int64_t sound = 2048;  // width of the sound's stream
  bool marked = false;   // LTX-2.5: a first frame that is marked, and feed-forward layers without biases

  Shapes shapes() const;
};
inline constexpr Ltx2Dit small_ltx2{2, 128, 128, false, 64}, small_ltx23{2, 128, 128, true, 64},
    small_ltx25{2, 128, 128, true, 64, true}, full_ltx2{48, 4096, 3840}, full_ltx23{48, 4096, 4096, true},
    full_ltx25{48, 4096, 4096, true, 2048, true};

// A connector (learnable_registers, ...) under `prefix`.
struct Ltx2Connector {
  int64_t blocks, width, registers;
  bool gated = false;
  int64_t head = 128;
};
void add_ltx2_connector(Shapes& shapes, const std::string& prefix, const Ltx2Connector& size);

// Its autoencoder under `prefix`, with 128 channels of latents. Channels and res blocks of each part of the encoder,
// and of the decoder, whose factors are those by which a part that changes the size has more channels behind it.
struct Ltx2Vae {
  std::vector<int64_t> down, down_blocks, up, up_blocks;
  std::vector<int64_t> up_places;
};
extern const Ltx2Vae small_ltx2_vae, full_ltx2_vae, full_ltx23_vae;
void add_ltx2_vae(Shapes& shapes, const std::string& prefix, const Ltx2Vae& size);

// Its autoencoder of sound under `prefix`, with 8 channels of latents for 16 bands.
inline constexpr int64_t small_ltx2_sound = 4, full_ltx2_sound = 128;
void add_ltx2_sound_vae(Shapes& shapes, const std::string& prefix, int64_t channels);

// Its vocoder: channels of the network of LTX-2 under `prefix`, or of the two of later models.
struct Ltx2Voice {
  int64_t first, second = 0;
};
inline constexpr Ltx2Voice small_ltx2_voice{32}, small_ltx23_voice{64, 32}, full_ltx2_voice{1024},
    full_ltx23_voice{1536, 512};
void add_ltx2_vocoder(Shapes& shapes, const std::string& prefix, const Ltx2Voice& size);

// Gemma 3 under `prefix`: heads of 256, two queries for each key.
void add_gemma3(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t heads, int64_t inner,
                int64_t words);

// Gemma 4 likewise: each sixth layer has heads of 512, one of keys, and no v_proj.
void add_gemma4(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t heads, int64_t inner,
                int64_t words);

// One file with everything that a run needs but the tokenizer, with as many words as tests/data/gemma_small has.
void write_small_ltx2(const std::filesystem::path& path);
void write_small_ltx25(const std::filesystem::path& path);

}  // namespace lh::test
