// Changes of one weight, each a product on some of its rows, added up as one product.
#pragma once

#include <vector>

#include "io/lora_names.h"
#include "io/lora_products.h"

namespace lh {

class ProductSum {
 public:
  ProductSum(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {}
  // Adds factor * product on the rows of the place. A right matrix that is there already, bit for bit, is shared, so
  // that q, k and v of a layer that was split do not have three of it.
  void add(const LoraProduct& product, double factor, const LoraPlace& place);
  int64_t rank() const;  // the sum of the ranks, of shared ones once
  // [left, left, ...] [right; right; ...]. Above the smaller side of the weight the sum itself, times one.
  LoraProduct product() const;

 private:
  int64_t rows_, columns_;
  std::vector<LoraProduct> parts_;  // each of all rows
};

}  // namespace lh
