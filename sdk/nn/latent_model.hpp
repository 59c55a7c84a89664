// A model of latent diffusion: the roles of such plugins, of which those of the autoencoder are alike in most. A model
// that makes sound, too, has two more.
//
//   class Mine : public nn::LatentModel { Mine(const Weights&) : LatentModel({"mine", "transformer", {scale, shift}})
//   ... };
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "nn/autoencoder.hpp"

namespace lora_host::nn {

struct LatentModelFacts {
  const char* id;                // of the plugin
  const char* network;           // what the denoiser is, for messages: "transformer"
  LatentScale latents = {1, 0};  // of autoencoders of nn/autoencoder.hpp
};

// Encoders and the autoencoder can be opened without the denoiser.
class LatentModel : public Model {
 public:
  const char* role(uint32_t index) const final {
    if (!has_autoencoder() && index >= autoencoder) index += sound - autoencoder;
    return index < (has_sound() ? roles.size() : sound) ? roles[index] : nullptr;
  }

  void build(Graph& g, std::string_view role, const Sizes& sizes) const final {
    if (role == "denoiser") {
      if (!has_denoiser())
        throw Failure(LH_E_MODEL, std::string("role denoiser needs the ") + facts_.network +
                                      "; give its file as model.name_or_path");
      return build_denoiser(g, sizes);
    }
    if (role == "conditioner") return build_conditioner(g, sizes);
    if (has_autoencoder() && (role == "vae.encode" || role == "vae.decode")) {
      g.weights().require_component("vae", "vae_path", role);
      return role == "vae.encode" ? build_encode(g, sizes) : build_decode(g, sizes);
    }
    if (has_sound() && (role == "sound.encode" || role == "sound.decode")) {
      g.weights().require_component("audio_vae", "audio_vae_path", role);
      if (role == "sound.encode") return build_sound_encode(g, sizes);
      g.weights().require_component("vocoder", "vocoder_path", role);
      return build_sound_decode(g, sizes);
    }
    throw no_role(role);
  }

 protected:
  explicit LatentModel(const LatentModelFacts& facts) : facts_(facts) {}

 private:
  virtual bool has_denoiser() const = 0;
  virtual bool has_autoencoder() const { return true; }  // false: latents are the picture itself
  virtual void build_denoiser(Graph& g, const Sizes& sizes) const = 0;
  virtual void build_conditioner(Graph& g, const Sizes& sizes) const = 0;
  // Autoencoders of another kind override these.
  virtual void build_encode(Graph& g, const Sizes& sizes) const { build_vae_encode(g, "vae:", facts_.latents, sizes); }
  virtual void build_decode(Graph& g, const Sizes& sizes) const { build_vae_decode(g, "vae:", facts_.latents, sizes); }

  // Models with sound override all three.
  virtual bool has_sound() const { return false; }
  virtual void build_sound_encode(Graph&, const Sizes&) const { throw no_role("sound.encode"); }
  virtual void build_sound_decode(Graph&, const Sizes&) const { throw no_role("sound.decode"); }

  Failure no_role(std::string_view role) const {
    return {LH_E_UNSUPPORTED, facts_.id + (" has no role '" + std::string(role) + "'")};
  }

  static constexpr std::array<const char*, 6> roles = {"denoiser",   "conditioner",  "vae.encode",
                                                       "vae.decode", "sound.encode", "sound.decode"};
  static constexpr uint32_t autoencoder = 2, sound = 4;  // where theirs begin
  LatentModelFacts facts_;
};

// Throws where a tensor takes another number of columns than the encoders give. givers: "t5 gives".
inline void require_width(const std::string& tensor, int64_t takes, const std::string& givers, int64_t given) {
  if (takes != given)
    throw Failure(LH_E_MODEL, tensor + " takes " + std::to_string(takes) + " columns, but " + givers + " " +
                                  std::to_string(given) + ": the files do not belong together");
}

}  // namespace lora_host::nn
