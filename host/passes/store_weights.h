// Pass: keeps the weights of linear layers in other types than the one that is computed in. Kernels convert them, layer
// by layer, when they are read:
//   y = x W^T + b   becomes   y = x (scale * W')^T + b, with W' in the type it is stored in
// A weight that other ops read as well, or read only, stays as it was declared.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/graph.h"

namespace lh {

// `form` says how the weight of that name is kept; nothing: as it was declared. Factors become the parameter
// scale_name(weight) (WeightForm::scale), which the weight's ValueInfo::scale names.
void store_weights(Graph& graph, const std::function<std::optional<WeightForm>(const std::string& weight)>& form);

std::string scale_name(const std::string& weight);

}  // namespace lh
