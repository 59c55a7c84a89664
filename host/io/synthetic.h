// Weights and inputs made from a rule, exact in every language: see docs/synthetic.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace lh {

uint64_t fnv1a64(std::string_view text);
// Element i of the tensor called `name`: float32(offset + scale * u_i), u_i in [-1, 1).
void generate(std::string_view name, double offset, double scale, std::span<float> out, int64_t first = 0);
// A checkpoint with the tensors of a key list ({"tensors": {name: [dtype, shape]}}), streamed to disk.
void make_checkpoint(const std::filesystem::path& key_list, const std::filesystem::path& out, uint64_t seed);

}  // namespace lh
