// Weights and inputs made from a rule, exact in every language: see docs/synthetic.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace lh {

uint64_t fnv1a64(std::string_view text);
// Element i of the tensor called `name`: float32(offset + scale * u_i), u_i in [-1, 1).
void generate(std::string_view name, double offset, double scale, std::span<float> out, int64_t first = 0);
// A checkpoint with the tensors of a key list ({"tensors": {name: [dtype, shape]}}), streamed to disk.
void make_checkpoint(const std::filesystem::path& key_list, const std::filesystem::path& out, uint64_t seed);
// A file with the header of such a checkpoint over a hole: it takes no disk space, and every weight reads as zero. For
// weights that are made on the device.
void make_hollow_checkpoint(const std::filesystem::path& key_list, const std::filesystem::path& out);
// Law of a synthetic weight that keeps a forward pass finite: offset + scale * (mean 0, standard deviation 1).
struct WeightLaw {
  double offset = 0, deviation = 0;
};
WeightLaw weight_law(std::string_view name, const Shape& shape);

}  // namespace lh
