// Which type the base is kept in and multiplied in, and how large images may be, on a card: what the memory planner
// predicts decides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "run/card.h"

namespace lh {

struct ChosenMemory {
  std::string dtype, products;  // model.dtype, model.products
  int64_t resolution = 0;
  int64_t memory = 0;        // bytes that a step takes
  double seconds = 0;        // that it takes, predicted
  std::string others;        // what the other types would take, in a line
  std::string why_products;  // what products in 8 bits give and cost; empty where the card is not known to have them
};

// The largest of the resolutions (in ascending order) that fits; of types that fit the one nearest to the checkpoint's
// own that is not much slower than the fastest. Products in 8 bits, which cost exactness in every step, only where a
// step is half as fast again with them. card: as it is for such products. Throws lh::Error(Code::resource) where
// nothing fits.
ChosenMemory choose_memory(const Options& options, const std::function<Card(lk_products)>& card,
                           const std::vector<int64_t>& resolutions);

}  // namespace lh
