// The LTX-2 transformer: its dimensions, read from weight shapes, and its graph, of the clip's stream alone or with
// that of its sound.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace ltx2 {

struct SoundDimensions {
  int64_t hidden = 0, channels = 0;
  int64_t text = 0;  // width of a row of its text
};

struct Dimensions {
  int64_t hidden = 0, channels = 0, blocks = 0;
  int64_t text = 0;           // width of a row of text
  bool caption = false;       // rows go through caption_projection (2.0)
  bool prompt_adaln = false;  // text is modulated, and with it what asks it (2.3 and 2.5)
  bool marked = false;        // tokens of the first frame are marked (2.5)
  std::optional<SoundDimensions> sound = {};
  int64_t rows() const { return prompt_adaln ? 9 : 6; }  // of what follows from the time in a block
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape. sound: what is there for sound is
// needed, too.
Dimensions read_dimensions(const lora_host::Weights& weights, bool sound);

// Feed-forward layers have no biases: LTX-2.5.
bool without_biases(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, t, H, W, C] of a video with so many frames a second, text [B, L, D], timestep f32 [B] (sigma in 0..1),
// and first_frame and given of nn::FirstFrame -> velocity. With the size sound, of n rows: sound [B, n, C] and
// sound_text [B, L, D], too -> sound_output.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, double fps, const lora_host::Sizes& sizes);

}  // namespace ltx2
