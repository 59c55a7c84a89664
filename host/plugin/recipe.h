// A model's recipe: what differs between model families, as data. The YAML is documented in docs/plugin-guide.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/pattern.h"
#include "data/further_images.h"
#include "data/size_step.h"
#include "data/sound_spec.h"
#include "data/tokenizer_spec.h"

namespace lh {

// What the model says about x_t = alpha x0 + sigma noise.
enum class Objective {
  flow,          // noise - x0, with alpha = 1 - sigma and the time sigma
  epsilon,       // noise, on a schedule of discrete timesteps
  v_prediction,  // alpha noise - sigma x0, on such a schedule
};
std::string_view objective_name(Objective objective);

// The shape of what is diffused, [B, height, width, C] or [B, time, height, width, C]. Scale, shift and statistics
// belong to the graphs of the VAE, where there is one: latents are in model space wherever the host sees them.
struct LatentSpec {
  int64_t channels = 0;
  int64_t downscale = 8;       // pixels of one place of height and width
  int64_t multiple = 1;        // latent sides are multiples of it
  bool time = false;           // there is an axis of time
  int64_t time_downscale = 1;  // frames of one place of it, but for the first, which is of one frame
  bool pixels = false;         // the picture itself, in [-1, 1]: there is no VAE, and a place is a pixel
  int64_t pixel_step() const { return downscale * multiple; }
  SizeStep size_step() const { return {pixel_step(), time ? time_downscale : 0}; }
  int64_t times(int64_t frames) const { return (frames - 1) / time_downscale + 1; }
  int64_t frames(int64_t times) const { return (times - 1) * time_downscale + 1; }
};

// What one input of the denoiser's graph is given. encode/denoiser_inputs.h says how each source is made.
struct InputSpec {
  enum class Source {
    conditioner,  // an output of the conditioner for the sample's prompt
    mask,         // i32 [B, L]: which rows of another input are there
    lengths,      // i32 [B]: how many
    time,         // f32 [B]: sigma of flow models, the training timestep of others
    sigma,        // f32 [B]
    log_snr,      // f32 [B]: log(alpha^2 / sigma^2)
    guidance,     // f32 [B]: strength for models that were distilled from guidance
    sizes,        // f32 [B, n]: numbers of the image and constants
    image,        // a further image of the sample
    constant,     // f32 [B]
    inpaint,      // which part of an image is to be painted anew, or what is there beside it
    first_frame,  // what a clip begins with
    given,        // f32 [B]: 1 of samples that have that, else 0
  };
  enum class Image { latents, pixels, mask };
  // A number of the image, or a constant where `name` is empty.
  struct Number {
    std::string name;
    double value = 0;
  };

  Source source = Source::constant;
  std::string of;          // conditioner: the output; mask, lengths: the input; image: the dataset's key; inpaint:
                           // inpaint_mask_key or inpaint_image_key; first_frame and given: the key of samples
  std::string mask;        // conditioner: the output, i32 [1, L], that says which of the rows are there; empty: all
  int64_t round = 1;       // conditioner with a mask: rows are padded to a multiple of this
  bool per_token = false;  // noise levels: f32 [B, tokens]
  std::vector<Number> numbers;  // sizes
  Image image = Image::latents;
  // The model can do without. It is an input of runs that have images of its key; first_frame: or clips that go on from
  // their own, and of samples without it is zeros.
  bool optional = false;
  bool starts = false;       // first_frame: its latents alone, in place of the first of the noisy ones
  double value = 0;          // constant; guidance: the number below 0 that is none, where the model has one
  std::string text() const;  // "conditioner.text", as the recipe has it
  // Depends on the prompt.
  bool of_prompt() const {
    return source == Source::conditioner || source == Source::mask || source == Source::lengths;
  }
  // Rows of an input from the conditioner in a graph that has to hold `rows`.
  int64_t padded(int64_t rows) const { return (rows + round - 1) / round * round; }
};

// A picture that an encoder is shown: an input of the conditioner's graph, scaled to about `area` pixels with sides of
// whole multiples, or to a square. For an encoder that also reads, each square of `multiple` pixels has a place among
// its tokens; one without a tokenizer sees the picture alone.
struct PictureSpec {
  std::string of;       // the dataset's key; first_frame: the key of samples
  std::string encoder;  // a component; if it has a tokenizer, that says where the places are
  int64_t area = 0, multiple = 1;
  int64_t side = 0;          // above 0, in place of both: of a square, whatever the picture's shape
  bool first_frame = false;  // what a clip begins with
  bool optional = false;     // as that of an input
};

// A denoiser's share of the noise levels, where a model has several: sigma above `above`, up to the next one's.
struct DenoiserSpec {
  std::string role = "denoiser";
  double above = 0;
};

// mu grows linearly with the number of image tokens, or with its logarithm; sigma' = e^mu / (e^mu + 1/sigma - 1).
struct ResolutionShift {
  double base_tokens = 256, base = 0.5, max_tokens = 4096, max = 1.15;
  bool logarithmic = false;
  bool capped = false;  // at `max`
  double mu(int64_t tokens) const;
};

// The noise that the latents of a flow model are mixed with: normal numbers, those beyond `clip` standard deviations
// set back to that (0: none are), times `scale`. x_t = (1 - sigma) x + sigma scale noise, and the model says scale
// noise - x.
struct NoiseSpec {
  double scale = 1, clip = 0;
};

// The noise that epsilon and v_prediction models are trained on: see diffusion/noise_schedule.h.
struct NoiseScheduleSpec {
  std::string kind = "scaled_linear";  // or "linear"
  double beta_start = 0.00085, beta_end = 0.012;
  int64_t steps = 1000;
  bool zero_terminal_snr = false;
};

struct TimestepSpec {
  std::string type = "sigmoid";
  double shift = 1;
  double scale = 1;  // of the normal number of which a sigmoid is taken
  std::string weighting = "none";
  std::optional<ResolutionShift> resolution_shift;
  // Of a law with that shift: the times of these two ranks are stretched to 0 and 1, and a share of all is drawn
  // evenly.
  std::optional<std::array<double, 2>> stretch;
  double even = 0;
};

// Where the noise levels of a sampling run lie: see diffusion/sampling_schedule.h.
struct ScheduleSpec {
  enum class Spacing { leading, trailing };
  // flow
  int64_t timesteps = 1000;  // noise levels that schedules may pick from
  bool dynamic = false;      // shifted by image size
  double shift = 1;
  bool shift_twice = false;
  // epsilon and v_prediction
  Spacing spacing = Spacing::leading;
  int64_t offset = 0;             // added to the timesteps of leading spacing
  bool set_alpha_to_one = false;  // ddim ends without noise, not at that of the first training timestep
};

// Guidance away from the model with some blocks left out, while start < step / steps < end.
struct SkipLayerGuidance {
  std::vector<int64_t> layers;
  double scale = 0, start = 0.01, end = 0.2;
};

struct SamplingSpec {
  std::string sampler, scheduler = "normal";
  GivenOptions sampler_params = {}, scheduler_params = {};
  int64_t steps = 20;
  double guidance = 1;
  double renorm_cfg = 0, cfg_trunc_ratio = 1;  // Guidance::limit and until
  ScheduleSpec schedule;
  std::optional<SkipLayerGuidance> skip_layer_guidance;
};

// The modules that a recipe's lora.targets name: regular expressions over whole names.
class LoraTargets {
 public:
  LoraTargets() = default;
  explicit LoraTargets(const std::vector<std::string>& patterns);
  bool contain(const std::string& module) const;

 private:
  std::vector<Pattern> patterns_;
};

struct Recipe {
  std::string family, variant;
  Objective objective = Objective::flow;
  LatentSpec latents;
  std::map<std::string, LatentSpec> other_latents;  // diffused together with `latents`; by input
  std::optional<SoundSpec> sound;                   // of models that make it beside clips, where it is asked for
  std::map<std::string, InputSpec> inputs;          // of the denoiser's graph, beside its latents
  std::map<std::string, PictureSpec> pictures;      // of the conditioner's graph, beside its tokens
  std::set<std::string> left_out;                   // keys of images that it could be given: see keep_images
  std::set<std::string> left_out_of_samples;        // and of such that samples alone have
  std::vector<DenoiserSpec> denoisers{{}};          // from the noisiest
  std::map<std::string, TokenizerSpec> tokenizers;  // by encoder
  NoiseSpec noise;
  NoiseScheduleSpec noise_schedule;
  TimestepSpec timestep;
  SamplingSpec sampling;
  std::vector<std::string> lora_targets, lora_conv_targets;           // patterns of LoraTargets
  std::map<std::string, std::vector<std::string>> lora_text_targets;  // by encoder
  std::map<std::string, std::string> metadata;                        // for LoRA files

  bool guided() const;                             // one of the inputs is a distilled guidance strength
  bool of_prompt(const std::string& input) const;  // an input of the denoiser that differs from prompt to prompt
  bool inpaints() const;                           // and to some the part of an image that is to be painted anew
  bool shown_first_frames() const;                 // and to some what a clip begins with
  bool starts_clips() const;               // and then in place of their first noisy latents, of which nothing is learnt
  std::set<std::string> encoders() const;  // components of the conditioner: those that read and those that see
  // Leaves out the optional inputs and pictures whose images are not among these keys, which are those that the run
  // has: keys_of_images.
  void keep_images(const std::set<std::string>& keys);
  ImageKeys image_keys() const;             // of the further images that the model is given in training
  ImageKeys image_keys_of_samples() const;  // and in sampling, where there is no image but those

  // Throws lh::Error(Code::plugin) naming plugin and line: unknown and missing fields, values out of range, and what
  // does not fit the objective.
  static Recipe parse(const std::string& yaml, const std::string& plugin);
};

}  // namespace lh
