// fp8 checkpoints: finds the scale of each weight and drops the keys that only describe the quantisation.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/weight_files.h"

namespace lh {

struct ScaledKey {  // one stored tensor, with what it has to be multiplied by
  StoredKey weight;
  std::optional<StoredKey> scale;  // one value, or one per row
};
using ScaledKeys = std::map<std::string, ScaledKey>;

// Throws, naming the format, for a quantisation that is not fp8.
ScaledKeys resolve_scales(const StoredKeys& keys);
// The values of a piece's scale; empty where it has none.
std::vector<float> scale_values(const ScaledKey& piece);

// Does the tensor describe how one of these weights, "x.weight", is quantised, and nothing else?
bool describes_one_of(const std::string& key, const std::set<std::string>& weights);
// Takes the layers of these weights out of a file's metadata.
void drop_layers(std::map<std::string, std::string>& metadata, const std::set<std::string>& weights);

}  // namespace lh
