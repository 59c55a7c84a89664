#include "io/lora_products.h"

#include <algorithm>

namespace lh {
namespace {

using enum LoraPart;

// [rows, columns] to [columns, rows].
std::vector<float> transposed(const std::vector<float>& in, int64_t rows) {
  const auto r = static_cast<size_t>(rows), columns = in.size() / r;
  std::vector<float> out(in.size());
  for (size_t i = 0; i < r; ++i)
    for (size_t j = 0; j < columns; ++j) out[j * r + i] = in[i * columns + j];
  return out;
}

// core [p, q, taps] and b [q, n]: out[p, (n, tap)] = sum_q core[p, q, tap] b[q, n].
std::vector<float> core_times(const std::vector<float>& core, const Shape& shape, const std::vector<float>& b) {
  const auto p = static_cast<size_t>(shape[0]), q = static_cast<size_t>(shape[1]);
  const size_t taps = core.size() / (p * q), n = b.size() / q;
  std::vector<float> out(p * n * taps);
  for (size_t i = 0; i < p; ++i)
    for (size_t j = 0; j < q; ++j)
      for (size_t c = 0; c < n; ++c)
        for (size_t t = 0; t < taps; ++t) out[(i * n + c) * taps + t] += core[(i * q + j) * taps + t] * b[j * n + c];
  return out;
}

std::vector<float> identity(int64_t side) {
  std::vector<float> out(static_cast<size_t>(side * side));
  for (int64_t i = 0; i < side; ++i) out[static_cast<size_t>(i * side + i)] = 1;
  return out;
}

// A whole matrix as a product of its smaller side.
LoraProduct times_one(std::vector<float> matrix, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(matrix.size()) / rows;
  if (columns <= rows) return {std::move(matrix), identity(columns), columns};
  return {identity(rows), std::move(matrix), rows};
}

// out[(i, j), (k, l)] = a[i, k] b[j, l].
std::vector<float> kron(const std::vector<float>& a, int64_t a_rows, const std::vector<float>& b, int64_t b_rows) {
  const size_t p = static_cast<size_t>(a_rows), m = a.size() / p, q = static_cast<size_t>(b_rows), n = b.size() / q;
  std::vector<float> out(a.size() * b.size());
  for (size_t i = 0; i < p; ++i)
    for (size_t j = 0; j < q; ++j)
      for (size_t k = 0; k < m; ++k)
        for (size_t l = 0; l < n; ++l) out[((i * q + j) * m + k) * n + l] = a[i * m + k] * b[j * n + l];
  return out;
}

LoraProduct kron_factor(const LoraFile& file, const LoraEntry& entry, LoraPart whole, LoraPart left, LoraPart right) {
  if (entry.has(whole)) return times_one(values_of(file, entry, whole), entry.shape(whole)[0]);
  return bounded(pair_of(file, entry, left, right));
}

LoraProduct lokr_of(const LoraFile& file, const LoraEntry& entry) {
  const LoraProduct first = kron_factor(file, entry, lokr_w1, lokr_w1_a, lokr_w1_b);
  const LoraProduct second = entry.has(lokr_t2) ? bounded(tucker_of(file, entry, lokr_t2, lokr_w2_a, lokr_w2_b))
                                                : kron_factor(file, entry, lokr_w2, lokr_w2_a, lokr_w2_b);
  return {kron(first.left, first.rows(), second.left, second.rows()),
          kron(first.right, first.rank, second.right, second.rank), first.rank * second.rank};
}

LoraProduct products_elementwise(const LoraProduct& a, const LoraProduct& b) {
  const auto rows = static_cast<size_t>(a.rows()), columns = static_cast<size_t>(a.columns());
  const auto ra = static_cast<size_t>(a.rank), rb = static_cast<size_t>(b.rank);
  if (a.rank * b.rank >= std::min(a.rows(), a.columns())) {
    std::vector<float> first = multiplied(a);
    const std::vector<float> second = multiplied(b);
    for (size_t i = 0; i < first.size(); ++i) first[i] *= second[i];
    return times_one(std::move(first), a.rows());
  }
  LoraProduct out{std::vector<float>(rows * ra * rb), std::vector<float>(ra * rb * columns), a.rank * b.rank};
  for (size_t i = 0; i < ra; ++i)
    for (size_t j = 0; j < rb; ++j) {
      const size_t k = i * rb + j;
      for (size_t r = 0; r < rows; ++r) out.left[r * ra * rb + k] = a.left[r * ra + i] * b.left[r * rb + j];
      for (size_t c = 0; c < columns; ++c)
        out.right[k * columns + c] = a.right[i * columns + c] * b.right[j * columns + c];
    }
  return out;
}

}  // namespace

std::vector<float> multiplied(const LoraProduct& product) {
  const auto columns = static_cast<size_t>(product.columns()), rank = static_cast<size_t>(product.rank);
  std::vector<float> out;
  std::vector<double> row(columns);
  for (auto left = product.left.begin(); left != product.left.end(); left += product.rank) {
    std::ranges::fill(row, 0.0);
    for (size_t k = 0; k < rank; ++k)
      for (size_t c = 0; c < columns; ++c)
        row[c] += static_cast<double>(left[static_cast<std::ptrdiff_t>(k)]) * product.right[k * columns + c];
    for (const double v : row) out.push_back(static_cast<float>(v));
  }
  return out;
}

LoraProduct bounded(LoraProduct product) {
  if (product.rank <= std::min(product.rows(), product.columns())) return product;
  const int64_t rows = product.rows();
  return times_one(multiplied(product), rows);
}

void LoraProduct::row(int64_t index, std::span<float> out) const {
  std::ranges::fill(out, 0.0f);
  const float* factors = left.data() + index * rank;
  for (int64_t k = 0; k < rank; ++k) {
    const float* from = right.data() + static_cast<size_t>(k) * out.size();
    for (size_t i = 0; i < out.size(); ++i) out[i] += factors[k] * from[i];
  }
}

std::vector<float> values_of(const LoraFile& file, const LoraEntry& entry, LoraPart part) {
  const HostTensor tensor = read_f32(file, entry.tensor(part));
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

LoraProduct pair_of(const LoraFile& file, const LoraEntry& entry, LoraPart left, LoraPart right) {
  const Shape& shape = entry.shape(left);
  return {values_of(file, entry, left), values_of(file, entry, right), shape.with(0, 1).numel()};
}

LoraProduct tucker_of(const LoraFile& file, const LoraEntry& entry, LoraPart core, LoraPart left, LoraPart right) {
  const Shape& shape = entry.shape(core);
  return {transposed(values_of(file, entry, left), shape[0]),
          core_times(values_of(file, entry, core), shape, values_of(file, entry, right)), shape[0]};
}

LoraProduct lora_of(const LoraFile& file, const LoraEntry& entry) {
  LoraProduct product = pair_of(file, entry, up, down);
  if (entry.has(mid)) product.right = core_times(values_of(file, entry, mid), entry.shape(mid), product.right);
  return product;
}

LoraProduct loha_of(const LoraFile& file, const LoraEntry& entry, bool second) {
  const LoraPart core = second ? hada_t2 : hada_t1, left = second ? hada_w2_a : hada_w1_a,
                 right = second ? hada_w2_b : hada_w1_b;
  return entry.has(core) ? tucker_of(file, entry, core, left, right) : pair_of(file, entry, left, right);
}

LoraProduct product_of(const LoraFile& file, const LoraEntry& entry) {
  switch (entry.kind) {
    case LoraKind::lora: return bounded(lora_of(file, entry));
    case LoraKind::loha: return products_elementwise(loha_of(file, entry, false), loha_of(file, entry, true));
    case LoraKind::lokr: return bounded(lokr_of(file, entry));
    case LoraKind::full: return times_one(values_of(file, entry, diff), entry.rows());
  }
  return {};
}

}  // namespace lh
