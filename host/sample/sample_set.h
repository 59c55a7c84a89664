// Everything that makes a set of images: a denoiser for each size, number of steps, guidance and strength among them,
// and a decoder for each size. They share one arena, and all weights.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/other_experts.h"
#include "data/sample_file.h"
#include "sample/denoiser.h"
#include "sample/sound_decoder.h"

namespace lh {

// What a set is made with.
struct SampleCalls {
  std::function<NamedTensors(const SampleRequest& request)> images;  // by input
  std::function<bool()> stop;
  // The weights of the expert of a share are needed from here on; not called where there is one for all levels.
  std::function<void(size_t share)> use;
  // A sample's latents in model space, as soon as they are.
  std::function<void(size_t index, const HostTensor& latents)> made;
};

class SampleSet {
 public:
  // select: of the adapters as they are trained; a request's strength multiplies what they change.
  // lengths: of the longest prompt (TextEncoding). streaming: as the weights are kept that it is bound to.
  // experts: none where the model denoises all levels; those that are not `model` have no adapter.
  SampleSet(Device& device, const Model& model, const SelectAdapter& select, DType compute,
            const SamplerChoice& sampler, const std::vector<SampleRequest>& requests, const Sizes& lengths,
            const Streaming& streaming = {}, const OtherExperts& experts = {});
  // The graph that uses every weight and adapter.
  const Graph& graph() const { return denoisers_.front().denoiser->graph(); }
  // What the denoisers take of the device, one at a time in one arena.
  Denoiser::Memory memory() const;
  void bind(std::byte* arena, const Weights& weights, const Adapters* adapters);
  // For requests like those it was made for. Of several experts each has all samples go through its levels before the
  // next one's weights are needed; latents wait in host memory between them.
  void denoise(const std::vector<SampleRequest>& requests, TextEncoding& text, const SampleCalls& calls);

  // Decoders for all sizes, as large as fits into `room`; none where latents are the pictures themselves.
  void plan_decoding(const Vae& vae, const MemoryRoom& room);
  // What that would take, in place of what was planned.
  VaeMemory decoding_in(const Vae& vae, const MemoryRoom& room) const;
  void require_decoding(const MemoryRoom& room) const;  // VaePlan::require of each
  VaeMemory decoding() const;
  std::string decoding_text() const;  // of the largest; empty: there is none
  void bind_decoders(std::byte* arena);
  Sampled decode(const SampleRequest& request, const HostTensor& latents);

 private:
  // own: of the opened model, with its adapters.
  struct Made {
    SampleRequest like;
    bool own = true;
    std::unique_ptr<Denoiser> denoiser = {};
  };
  // The model's own levels, or those of each expert.
  struct Share {
    double above = 0;
    bool own = true;
  };
  std::set<Bucket> sizes() const;
  VaeMemory with_sound(VaeMemory decoding) const;
  Denoiser* find(const SampleRequest& request, bool own) const;
  const Recipe& recipe_;
  std::vector<Share> shares_;
  std::vector<Made> denoisers_;  // those of the opened model first
  std::vector<std::pair<Bucket, Decoder>> decoders_;
  std::map<int64_t, SoundDecoder> sound_decoders_;  // by rows of latents
};

}  // namespace lh
