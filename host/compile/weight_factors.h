// Pairs of matrices that begin with factors of the weight: its largest singular vectors (PiSSA, Meng et al. 2024) or
// the first of its QR factors (OLoRA, Bueyuekakyuez 2024). The same weight and seed give the same bytes.
#pragma once

#include <cstdint>

#include "core/random.h"
#include "core/tensor.h"

namespace lh {

struct WeightFactors {
  HostTensor down, up;  // float32 [rank, inputs], [outputs, rank]
};

// weight: float32 [outputs, inputs ...], seen as a matrix; rank: at most its smaller side; scale: more than 0.

// up down is the best approximation of weight / scale of this rank, and |row i of down| = |column i of up|. rounds: of
// randomized subspace iteration (Halko et al. 2011, algorithm 4.4) with normal numbers of `random`; 0: computed from
// the eigenvectors of the Gram matrix in float64.
WeightFactors singular_factors(const HostTensor& weight, int64_t rank, double scale, int64_t rounds, Random& random);
// weight = Q R: up is Q's first columns, down R's first rows, with R's diagonal at least 0.
WeightFactors qr_factors(const HostTensor& weight, int64_t rank);

}  // namespace lh
