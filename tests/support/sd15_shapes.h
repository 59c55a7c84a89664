// Stable Diffusion 1 and 2: the published UNets by names and shapes, and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// context: width of the text. convolutions: around the transformers, in place of linears. in: channels of the image.
Shapes sd15_unet(int64_t context, bool convolutions, int64_t in = 4);

// The UNet of a golden case whose text is 64 wide, with a text encoder and an autoencoder.
void write_small_sd15(const std::filesystem::path& path, const std::string& golden_case = "sd15_locon_tiny");

}  // namespace lh::test
