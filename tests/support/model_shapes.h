// Denoisers of the shipped families in any size, by the names and shapes of their original files; and small whole
// models in one file, whose parts fit each other.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer of Stable Diffusion 3.5.
struct Mmdit {
  int64_t blocks, dual, grid, hidden;  // blocks 0 .. dual-1 have a second attention
  int64_t text, pooled;
  bool qk_norm = true;

  Shapes shapes() const;

 private:
  void stream(Shapes& out, const std::string& name, int64_t pieces) const;
};

// What Flux.1 and its relatives share: all but what makes their modulation.
struct FluxBlocks {
  int64_t hidden, text, double_blocks, single_blocks;

  Shapes shapes() const;
};

// The transformer of Chroma; `wide`: of the network that makes the modulation.
struct Chroma : FluxBlocks {
  int64_t wide, layers = 5;

  Shapes shapes() const;
};

// Chroma1-Radiance, which works on pixels: `width` features of a pixel, `inner` inside a block of the head.
struct Radiance : Chroma {
  int64_t patch = 16, width = 64, inner = 256, frequencies = 8, head_blocks = 4;
  bool gives_picture = false, sees_neighbours = true;

  Shapes shapes() const;
};

// The UNet of SDXL and its relatives.
struct Unet {
  int64_t channels, context, label;
  int64_t res_blocks;         // of each level
  std::vector<int64_t> down;  // transformer blocks beside each res block, level by level; the middle's; and up
  int64_t middle;             // 0: the middle is a single res block; -1: there is none
  std::vector<int64_t> up;
  int64_t in = 4;

  Shapes shapes() const;

 private:
  void res(Shapes& out, const std::string& name, int64_t o, int64_t i) const;
  void transformer(Shapes& out, const std::string& name, int64_t c, int64_t depth) const;
};

inline constexpr Mmdit small_medium{3, 2, 24, 128, 192, 128}, small_large{3, 0, 16, 128, 192, 128};
inline constexpr Chroma small_chroma{{128, 192, 1, 2}, 40, 2};
inline constexpr Radiance small_radiance{small_chroma, 16, 8, 16, 3, 2};
inline constexpr Radiance small_radiance_x0{small_chroma, 32, 8, 16, 2, 1, true, false};
inline const Unet small_unet{32, 192, 128 + 1536, 2, {0, 0, 1, 1, 2, 2}, 1, {2, 1, 1, 1, 1, 1, 0, 0, 0}};
inline const Unet small_inpaint_unet{32, 192, 128 + 1536, 2, {0, 0, 1, 1, 2, 2}, 1, {2, 1, 1, 1, 1, 1, 0, 0, 0}, 9};

// The weights of a golden case under its names: an autoencoder that works.
std::vector<Given> golden_weights(const std::string& golden_case);

// One file with everything that a run needs, with as many words as the tokenizers have. `denoiser` is one of the small
// ones above. markers: further tensors without elements.
void write_small_sd35(const std::filesystem::path& path, const Mmdit& denoiser, bool with_t5 = true);
void write_small_chroma(const std::filesystem::path& path);
void write_small_radiance(const std::filesystem::path& path, const Radiance& denoiser = small_radiance);
// The transformer alone of examples/toy_flux, which has the shape of schnell, with an embedder for guidance as dev has.
void write_small_flux_dev(const std::filesystem::path& path);
// The same with as many channels beside the latents as Fill has.
void write_small_flux_fill(const std::filesystem::path& path);
void write_small_sdxl(const std::filesystem::path& path, const std::vector<std::string>& markers = {},
                      const Unet& unet = small_unet);

}  // namespace lh::test
