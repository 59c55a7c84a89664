// Pass: linear layers multiply with weights of 8 bits in 8 bits (lk_products), for their output and the gradient of
// their input; adapters, sums over rows and everything else stay in the type that is computed in. Runs after
// store_weights and before adapters are put on, which take it over.
#pragma once

#include <functional>
#include <string>

#include "graph/graph.h"
#include "lora_kernels.h"

namespace lh {

// The name that model.products has: "full", "float8", "int8".
lk_products products_named(const std::string& name);

// The layers whose weight `chosen` names. Code::config where none of them is kept in the type that `products` is for,
// or one of them in another type of fewer bits. Nothing is done for LK_PRODUCTS_WIDE.
void multiply_in(Graph& graph, lk_products products, const std::function<bool(const std::string& weight)>& chosen);

}  // namespace lh
