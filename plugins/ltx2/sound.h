// The stream of a clip's sound, and what goes to and fro between it and the clip's.
#pragma once

#include <string>

#include "denoiser.h"
#include "stream.h"

namespace ltx2 {

// Its inputs: sound, noisy latents [B, n, C] of the sigma f32 [B], and sound_text [B, L, D].
Stream sound_stream(lora_host::Graph& g, const SoundDimensions& dims, const lora_host::Sizes& sizes,
                    lora_host::Value sigma);

//   v, s = norm(x) of the clip and of the sound, before either changes
//   x of the clip  += gate audio_to_video_attn((1 + scale) v + shift, (1 + scale) s + shift)
//   x of the sound += gate video_to_audio_attn((1 + scale) s + shift, (1 + scale) v + shift)
//
// Both have scales, shifts and a gate that follow from the time: in LTX-2 from that of each frame of the clip, from 2.3
// on from the sample's own, as in diffusers. (In the vendor's programs scales and shifts follow from a frame's and
// gates from the sample's. Where no picture is given all these are one.) Positions are seconds.
class Exchange {
 public:
  // times: those of the clip's rows. clip_rope: of its tokens, by their seconds alone.
  Exchange(lora_host::Graph& g, const Stream& clip, const Stream& sound, lora_host::Value times, lora_host::Value sigma,
           const lora_host::nn::RopeTables& clip_rope);
  void operator()(const std::string& block, Stream& clip, Stream& sound) const;

 private:
  struct Side {
    lora_host::Value rows;  // [R, 5, h]: scale and shift of the one attention, of the other, gate
    lora_host::nn::RopeTables rope;
  };
  lora_host::Graph& g_;
  Side clip_, sound_;
};

}  // namespace ltx2
