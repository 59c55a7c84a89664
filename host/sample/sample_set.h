// Everything that makes a set of images: a denoiser for each size, number of steps, guidance and strength among them,
// and a decoder for each size. They share one arena, and all weights.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/sample_file.h"
#include "sample/denoiser.h"

namespace lh {

class SampleSet {
 public:
  // select: of the adapters as they are trained; a request's strength multiplies what they change.
  // lengths: of the longest prompt (TextEncoding). streaming: as the weights are kept that it is bound to.
  SampleSet(Device& device, const Model& model, const SelectAdapter& select, DType compute,
            const SamplerChoice& sampler, const std::vector<SampleRequest>& requests, const Sizes& lengths,
            const Streaming& streaming = {});
  // The graph that uses every weight and adapter.
  const Graph& graph() const { return denoisers_.front().second->graph(); }
  // What the denoisers take of the device, one at a time in one arena.
  Denoiser::Memory memory() const;
  void bind(std::byte* arena, const Weights& weights, const Adapters* adapters);
  // Latents in model space: Denoiser::sample. For a request like one of those it was made for.
  HostTensor denoise(const SampleRequest& request, TextEncoding& text, NamedTensors images,
                     const std::function<bool()>& cancelled);

  // Decoders for all sizes, as large as fits into `room`.
  void plan_decoding(const Vae& vae, const MemoryRoom& room);
  // What that would take, in place of what was planned.
  VaeMemory decoding_in(const Vae& vae, const MemoryRoom& room) const;
  void require_decoding(const MemoryRoom& room) const;  // VaePlan::require of each
  VaeMemory decoding() const;
  std::string decoding_text() const;  // of the largest
  void bind_decoders(std::byte* arena);
  Sampled decode(const SampleRequest& request, const HostTensor& latents);

 private:
  std::set<Bucket> sizes() const;
  std::vector<std::pair<SampleRequest, std::unique_ptr<Denoiser>>> denoisers_;
  std::vector<std::pair<Bucket, Decoder>> decoders_;
};

}  // namespace lh
