// What images are asked for, and the VAE decoder that makes them of the denoiser's latents.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/other_experts.h"
#include "data/image.h"
#include "data/sample.h"
#include "data/sample_file.h"
#include "diffusion/guidance.h"
#include "encode/image_inputs.h"
#include "encode/prompt.h"
#include "encode/vae.h"
#include "run/weights.h"

namespace lh {

struct SampleRequest {
  std::string prompt, negative;
  int64_t width = 512, height = 512, frames = 1, steps = 20;
  int64_t sound = 0;  // rows of latents of a clip's sound
  double fps = 16;    // that a clip is shown at
  Guidance guidance;
  std::vector<Guidance> by_share = {};  // in each share of the noise levels, where several experts have some
  uint64_t seed = 42;
  double strength = 1;     // of the trained adapter
  ImageFiles images = {};  // that it is made from, where the model is given some
  Bucket bucket() const { return {width, height, frames, sound}; }
  SampleKind kind() const {
    if (frames == 1) return SampleKind::image;
    return sound > 0 ? SampleKind::clip_with_sound : SampleKind::clip;
  }
  // The image of which a model for inpainting paints a part; without one only what its images are cut to.
  ImageCut cut() const;
  // Its texts with the pictures that the text encoder is shown.
  Prompt wanted(const Recipe& recipe) const;
  Prompt unwanted(const Recipe& recipe) const;
  bool asked_without() const;  // the model is asked with the negative prompt, in some share
  // With the guidance of one share.
  SampleRequest in_share(size_t share) const;
  Random posterior() const { return {seed, Purpose::inpaint_posterior, 0, 0}; }
};

// The VAE decoder for one image size, in tiles where the plan says so.
class Decoder {
 public:
  Decoder(const Vae& vae, VaePlan plan) : vae_(vae), plan_(std::move(plan)) {}
  const VaePlan& plan() const { return plan_; }
  // Loads the weights, unless another decoder of the same VAE has; gives them for the next. The arena may be shared
  // with programs that do not run at the same time.
  std::shared_ptr<const Weights> bind(std::byte* arena, std::shared_ptr<const Weights> weights = nullptr);
  std::vector<Image> decode(const HostTensor& latents);  // one, or the frames of a clip

 private:
  Vae vae_;
  VaePlan plan_;
  std::shared_ptr<const Weights> weights_;
  std::unique_ptr<Program> program_;
};

// Throws lh::Error when what the denoiser made has a NaN or infinity.
void require_finite_sample(const HostTensor& latents);
// The item over what is said for all of them, and the recipe's defaults where the user said nothing; sizes are checked
// against the model's step. seed: of an item that says none.
// shares: where several experts have some; each has the guidance of its own recipe.
SampleRequest complete_request(const SampleConfig& config, const Recipe& recipe, const SampleItem& item, uint64_t seed,
                               const std::vector<LevelShare>& shares = {});
// One for each of sample.prompts, with the trigger word put in and the files of sample.images read.
std::vector<SampleRequest> requests_of(const Config& config, const Recipe& recipe,
                                       const std::vector<LevelShare>& shares = {});
// What to say where some have a negative prompt that the model is not asked with; empty: nothing.
std::string unused_negative(const std::vector<SampleRequest>& requests, const Recipe& recipe);
// Prompts and images that a set of requests needs encoded.
std::vector<Prompt> prompts_of(const std::vector<SampleRequest>& requests, const Recipe& recipe);
std::vector<ImageCut> cuts_of(const std::vector<SampleRequest>& requests, const ImageInputs& images);

}  // namespace lh
