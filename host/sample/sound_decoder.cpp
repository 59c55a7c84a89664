#include "sample/sound_decoder.h"

#include "core/error.h"

namespace lh {

SoundDecoder::SoundDecoder(Device& device, const Model& model, int64_t rows)
    : device_(device), model_(model), made_(plan_sound(device, model, VaeRole::decode, rows)), memory_(made_.memory) {}

std::shared_ptr<const Weights> SoundDecoder::bind(std::byte* arena, std::shared_ptr<const Weights> weights) {
  weights_ = weights ? std::move(weights) : std::make_shared<const Weights>(device_, model_.checkpoint(), made_.graph);
  program_ = std::make_unique<Program>(device_, made_.graph, made_.plan, arena, weights_->bind(made_.graph));
  return weights_;
}

Sound SoundDecoder::decode(const HostTensor& latents) {
  program_->set_input("latents", latents);
  program_->run();
  const HostTensor heard = converted(program_->output("sound"), DType::f32);
  if (!all_finite(heard))
    fail(Code::numeric,
         "a sample: its sound is decoded to a NaN or infinity. The file of the sound's autoencoder or of its vocoder "
         "may be damaged");
  const std::span<const float> samples = heard.as<float>();
  return {model_.recipe().sound->output_rate, {samples.begin(), samples.end()}};
}

}  // namespace lh
