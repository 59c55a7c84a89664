// The best approximation of a change by a product of small rank: its largest singular values and their vectors.
#pragma once

#include <cstdint>
#include <span>

#include "io/lora_products.h"

namespace lh {

// How many singular values are kept; both, where both are given: the smaller number.
struct RankChoice {
  int64_t rank = 0;    // at most so many; 0: no limit
  double energy = 0;   // the fewest whose squares are this share of all; 0: no limit
  bool exact = false;  // of a matrix: all of its singular values, whatever that costs
};

struct LowRank {
  LoraProduct product;  // |column i of left| = |row i of right|, the largest first
  double kept = 1;      // share of the squared singular values
  double norm = 0;      // of what was approximated: root of the sum of all squares
};

// Of a product: from the QR factors of its matrices, in float64. What they make is never formed.
LowRank low_rank(const LoraProduct& product, const RankChoice& choice);

// Of a matrix [rows, columns]: where its smaller side is short, or most of it is asked for, or choice.exact, the
// eigenvectors of its Gram matrix in float64; else randomized subspace iteration (Halko et al. 2011, algorithm 4.4)
// from the same numbers every time, with more columns until they hold choice.energy. `kept` is measured on the result
// in either case.
LowRank low_rank(std::span<const float> matrix, int64_t rows, const RankChoice& choice);

// The root of the sum of the squares of what the product makes, which is never formed.
double norm_of(const LoraProduct& product);

}  // namespace lh
