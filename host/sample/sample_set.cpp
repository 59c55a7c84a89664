// Finds the denoiser and the decoder of a request among those that were compiled.
#include "sample/sample_set.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

// Whether one denoiser serves both.
bool alike(const SampleRequest& a, const SampleRequest& b) {
  return a.bucket() == b.bucket() && a.steps == b.steps && a.guidance.scale == b.guidance.scale &&
         a.strength == b.strength;
}

}  // namespace

SampleSet::SampleSet(Device& device, const Model& model, const SelectAdapter& select, DType compute,
                     const SamplerChoice& sampler, const std::vector<SampleRequest>& requests, const Sizes& lengths,
                     const Streaming& streaming, const OtherExperts& experts)
    : recipe_(model.recipe()) {
  for (const LevelShare& share : experts.shares()) shares_.push_back({share.above, share.model == &model});
  if (shares_.empty()) shares_.emplace_back();
  const SelectAdapter none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  for (const bool own : {true, false})
    for (size_t share = 0; share < shares_.size(); ++share)
      for (size_t i = 0; shares_[share].own == own && i < requests.size(); ++i) {
        const SampleRequest request = requests[i].in_share(share);
        if (find(request, own) != nullptr) continue;
        denoisers_.push_back(
            {request, own,
             std::make_unique<Denoiser>(device, model, own ? at_strength(select, request.strength) : none, compute,
                                        sampler, request, lengths, streaming)});
      }
}

Denoiser* SampleSet::find(const SampleRequest& request, bool own) const {
  const auto found =
      std::ranges::find_if(denoisers_, [&](const Made& made) { return made.own == own && alike(made.like, request); });
  return found == denoisers_.end() ? nullptr : found->denoiser.get();
}

Denoiser::Memory SampleSet::memory() const {
  Denoiser::Memory all;
  for (const Made& made : denoisers_) {
    const Denoiser::Memory one = made.denoiser->memory();
    all.arena = std::max(all.arena, one.arena);
    all.workspace = std::max(all.workspace, one.workspace);
    all.constants += one.constants;
  }
  return all;
}

void SampleSet::bind(std::byte* arena, const Weights& weights, const Adapters* adapters) {
  for (const Made& made : denoisers_) made.denoiser->bind(arena, weights, made.own ? adapters : nullptr);
}

void SampleSet::denoise(const std::vector<SampleRequest>& requests, TextEncoding& text, const SampleCalls& calls) {
  std::vector<SamplerState> states(requests.size());
  for (size_t share = 0; share < shares_.size(); ++share) {
    if (share > 0 && std::ranges::all_of(states, [](const SamplerState& state) { return state.x.data.empty(); }))
      return;
    if (shares_.size() > 1) calls.use(share);
    for (size_t i = 0; i < requests.size() && !calls.stop(); ++i) {
      const SampleRequest request = requests[i].in_share(share);
      Denoiser* const denoiser = find(request, shares_[share].own);
      if (denoiser == nullptr) fail(Code::internal, "no denoiser was made for images like this one");
      if (share == 0) states[i] = denoiser->begin(request);
      if (denoiser->done(states[i])) continue;
      denoiser->go_on(states[i], request, text, calls.images(request), shares_[share].above, calls.stop);
      if (denoiser->done(states[i])) calls.made(i, std::exchange(states[i].x, {}));
    }
    if (calls.stop()) return;
  }
}

std::set<Bucket> SampleSet::sizes() const {
  std::set<Bucket> all;
  for (const Made& made : denoisers_) all.insert(made.like.bucket());
  return all;
}

void SampleSet::plan_decoding(const Vae& vae, const MemoryRoom& room) {
  decoders_.clear();
  if (recipe_.latents.pixels) return;
  for (const Bucket& size : sizes())
    if (size.sound > 0) sound_decoders_.try_emplace(size.sound, vae.device, vae.model, size.sound);
  for (const Bucket& size : sizes()) decoders_.emplace_back(size, Decoder(vae, vae.fit(VaeRole::decode, size, room)));
}

// What is heard is made in the same arena as what is seen, with weights of its own.
VaeMemory SampleSet::with_sound(VaeMemory decoding) const {
  VaeMemory heard;
  for (const auto& [rows, decoder] : sound_decoders_) heard.join(decoder.memory());
  decoding.weights += heard.weights;
  decoding.constants += heard.constants;
  decoding.arena = std::max(decoding.arena, heard.arena);
  decoding.workspace = std::max(decoding.workspace, heard.workspace);
  return decoding;
}

VaeMemory SampleSet::decoding_in(const Vae& vae, const MemoryRoom& room) const {
  VaeMemory all;
  if (recipe_.latents.pixels) return all;
  for (const Bucket& size : sizes()) all.join(vae.fit(VaeRole::decode, size, room).memory);
  return with_sound(all);
}

void SampleSet::require_decoding(const MemoryRoom& room) const {
  for (const auto& [size, decoder] : decoders_) decoder.plan().require(room);
}

VaeMemory SampleSet::decoding() const {
  VaeMemory all;
  for (const auto& [size, decoder] : decoders_) all.join(decoder.plan().memory);
  return with_sound(all);
}

std::string SampleSet::decoding_text() const {
  if (decoders_.empty()) return "";
  const auto most =
      std::ranges::max_element(decoders_, {}, [](const auto& made) { return made.second.plan().memory.arena; });
  return most->second.plan().text();
}

void SampleSet::bind_decoders(std::byte* arena) {
  std::shared_ptr<const Weights> weights;
  for (auto& [size, decoder] : decoders_) weights = decoder.bind(arena, weights);
  weights = nullptr;
  for (auto& [rows, decoder] : sound_decoders_) weights = decoder.bind(arena, weights);
}

Sampled SampleSet::decode(const SampleRequest& request, const HostTensor& latents) {
  const Bucket size = request.bucket();
  const std::vector<HostTensor> parts = JoinedLatents(recipe_, size).apart(latents);
  Sampled sampled{.fps = request.fps};
  if (recipe_.latents.pixels) {
    require_finite_sample(parts[0]);
    sampled.frames = tensor_to_images(parts[0]);
  } else {
    const auto made = std::ranges::find(decoders_, size, &std::pair<Bucket, Decoder>::first);
    sampled.frames = made->second.decode(parts[0]);
  }
  if (size.sound > 0) {
    require_finite_sample(parts[1]);
    sampled.sound = sound_decoders_.at(size.sound).decode(parts[1]);
  }
  return sampled;
}

}  // namespace lh
