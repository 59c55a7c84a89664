// The products of two matrices that a module of a LoRA file is made of, read as float32, and its whole change as one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/lora_read.h"

namespace lh {

struct LoraProduct {  // left [rows, rank], right [rank, columns]
  std::vector<float> left, right;
  int64_t rank = 0;
  int64_t rows() const { return static_cast<int64_t>(left.size()) / rank; }
  int64_t columns() const { return static_cast<int64_t>(right.size()) / rank; }
  // out = row of left right. Any thread.
  void row(int64_t index, std::span<float> out) const;
};

// The matrix [rows, columns], summed in float64.
std::vector<float> multiplied(const LoraProduct& product);
// A product of a rank above the smaller side of what it makes becomes that matrix times one.
LoraProduct bounded(LoraProduct product);

std::vector<float> values_of(const LoraFile& file, const LoraEntry& entry, LoraPart part);
// Two matrices as they are stored.
LoraProduct pair_of(const LoraFile& file, const LoraEntry& entry, LoraPart left, LoraPart right);
// A Tucker core [p, q, taps] between [p, rows] and [q, columns]: the core is multiplied into the right matrix.
LoraProduct tucker_of(const LoraFile& file, const LoraEntry& entry, LoraPart core, LoraPart left, LoraPart right);
// A LoRA's up and down, its Tucker core, if it has one, multiplied into down.
LoraProduct lora_of(const LoraFile& file, const LoraEntry& entry);
// Of LoHa: one of the two products whose elements are multiplied.
LoraProduct loha_of(const LoraFile& file, const LoraEntry& entry, bool second);

// The change of an entry that changes a weight, without its scale and its DoRA magnitude, as one product:
//   LoRA  up down
//   LoHa  (A1 B1) o (A2 B2): column (i, j) of the left one is column i of A1 times column j of A2, and so on the right
//   LoKr  kron(L1 R1, L2 R2) = kron(L1, L2) kron(R1, R2); a whole factor is itself times one
//   full  itself times one
// Its rank is at most the smaller side of the weight.
LoraProduct product_of(const LoraFile& file, const LoraEntry& entry);

}  // namespace lh
