// fp8 checkpoints: finds the scale of each weight and drops the keys that only describe the quantisation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/weight_files.h"

namespace lh {

struct Piece {  // one stored tensor, with what it has to be multiplied by
  StoredKey weight;
  std::optional<StoredKey> scale;  // one value, or one per row
};
using Pieces = std::map<std::string, Piece>;

// Throws, naming the format, for a quantisation that is not fp8.
Pieces resolve_scales(const StoredKeys& keys);
// The values of a piece's scale; empty where it has none.
std::vector<float> scale_values(const Piece& piece);

}  // namespace lh
