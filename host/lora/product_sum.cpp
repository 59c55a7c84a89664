#include "lora/product_sum.h"

#include <algorithm>

namespace lh {

void ProductSum::add(const LoraProduct& product, double factor, const LoraPlace& place) {
  auto part = std::ranges::find(parts_, product.right, &LoraProduct::right);
  if (part == parts_.end()) {
    parts_.push_back({std::vector<float>(static_cast<size_t>(rows_ * product.rank)), product.right, product.rank});
    part = parts_.end() - 1;
  }
  for (int64_t r = 0; r < place.rows; ++r) {
    const int64_t row = place.first_row + (place.swapped_halves ? (r + place.rows / 2) % place.rows : r);
    const float* from = product.left.data() + r * product.rank;
    float* to = part->left.data() + row * product.rank;
    for (int64_t k = 0; k < product.rank; ++k)
      to[k] = static_cast<float>(static_cast<double>(to[k]) + factor * static_cast<double>(from[k]));
  }
}

int64_t ProductSum::rank() const {
  int64_t sum = 0;
  for (const LoraProduct& part : parts_) sum += part.rank;
  return sum;
}

LoraProduct ProductSum::product() const {
  const int64_t all = rank();
  LoraProduct sum{std::vector<float>(static_cast<size_t>(rows_ * all)), {}, all};
  int64_t first = 0;
  for (const LoraProduct& part : parts_) {
    for (int64_t r = 0; r < rows_; ++r)
      std::copy_n(part.left.begin() + r * part.rank, part.rank, sum.left.begin() + r * all + first);
    sum.right.insert(sum.right.end(), part.right.begin(), part.right.end());
    first += part.rank;
  }
  return bounded(std::move(sum));
}

}  // namespace lh
