// The change of a weight that a module of a LoRA file says, made row by row, and how it is put on the weight.
//
//   LoRA   dW = s B A;  B [out, r], A [r, in taps]; with a Tucker core T: A[p, (c, t)] = sum_q T[p, q, t] A'[q, c]
//   LoHa   dW = s (A1 B1) o (A2 B2), elementwise product; with cores the same way
//   LoKr   dW = s kron(W1, W2), each factor whole or a product
//   full   dW = D
// s = alpha / rank, 1 where the file has no alpha or LoKr decomposes nothing. Sources: LoRA (Hu et al. 2021), LyCORIS
// (Yeh et al. 2023) and its implementation.
//
//   W' = W + strength dW
// With a DoRA magnitude m (Liu et al. 2024): M = W + dW, W' = W + strength (m M / |M| - W). |M| is the norm over
// everything but the axis of m: of each input (LyCORIS) or of each row (the paper, PEFT).
// All in float32, norms in float64.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "io/lora_products.h"
#include "io/lora_read.h"

namespace lh {

// Where a change goes: rows [first, first + count) of a weight [rows, inputs, taps...] in float32. With swapped halves
// row i of the change is row (i + count / 2) % count of these.
struct WeightRows {
  float* data = nullptr;  // of row `first`
  int64_t count = 0, inputs = 0, taps = 1;
  bool swapped_halves = false;
  std::span<float> row(int64_t index) const {
    const int64_t place = swapped_halves ? (index + count / 2) % count : index;
    return {data + place * inputs * taps, static_cast<size_t>(inputs * taps)};
  }
};

// The axis of a DoRA magnitude on a weight [rows, inputs, taps...]; nothing: it fits neither.
enum class MagnitudeAxis { input, output };
std::optional<MagnitudeAxis> magnitude_axis(const Shape& magnitude, int64_t rows, int64_t inputs);

class LoraDelta {
 public:
  LoraDelta(const LoraFile& file, const LoraEntry& entry);
  // out = row of dW, entry.row_elements() values. Any thread.
  void row(int64_t index, std::span<float> out) const;
  void add_to(const WeightRows& weight, double strength) const;

 private:
  std::vector<float> matrix(const LoraFile& file, LoraPart whole, LoraPart left, LoraPart right) const;
  void add_plain(const WeightRows& weight, float strength) const;
  void add_by_row_norm(const WeightRows& weight, float strength) const;
  void add_by_input_norm(const WeightRows& weight, float strength) const;

  const LoraEntry& entry_;
  float scale_ = 1;
  std::vector<LoraProduct> products_;  // LoRA: one; LoHa: two
  std::vector<float> first_, second_;  // LoKr: W1 and W2; full: D
  int64_t second_rows_ = 1;
  std::vector<float> magnitude_;
  Shape magnitude_shape_;
};

}  // namespace lh
