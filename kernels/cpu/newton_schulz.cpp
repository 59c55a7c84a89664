// The iteration in the space of the shorter side: with S = x x^T of [r, n] (or x^T x of [n, r]), A_k = P_k S P_k and
// P_k+1 = (a + b A_k + c A_k^2) P_k, all symmetric; y = P x, or x P.
#include <algorithm>
#include <vector>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

// One matrix as r vectors of n elements, `step` from one element to the next and `pitch` from vector to vector.
struct Vectors {
  int64_t r, n, pitch, step;
};

using SquareMatrix = std::vector<double>;  // [r, r]

SquareMatrix product(int64_t r, const SquareMatrix& x, const SquareMatrix& y) {
  SquareMatrix z(static_cast<size_t>(r * r), 0.0);
  for (int64_t i = 0; i < r; ++i) {
    for (int64_t k = 0; k < r; ++k) {
      const double factor = x[static_cast<size_t>(i * r + k)];
      for (int64_t j = 0; j < r; ++j) z[static_cast<size_t>(i * r + j)] += factor * y[static_cast<size_t>(k * r + j)];
    }
  }
  return z;
}

SquareMatrix products_of(const Vectors& v, const float* x, double factor) {
  SquareMatrix s(static_cast<size_t>(v.r * v.r));
  for (int64_t i = 0; i < v.r; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < v.n; ++k)
        sum += static_cast<double>(x[i * v.pitch + k * v.step]) * static_cast<double>(x[j * v.pitch + k * v.step]);
      s[static_cast<size_t>(i * v.r + j)] = s[static_cast<size_t>(j * v.r + i)] = factor * sum;
    }
  }
  return s;
}

SquareMatrix iterated(const lk_newton_schulz_params& p, int64_t r, SquareMatrix a) {
  SquareMatrix total;
  for (int64_t step = 0; step < p.steps; ++step) {
    SquareMatrix q = product(r, a, a);
    for (int64_t i = 0; i < r * r; ++i) {
      double& value = q[static_cast<size_t>(i)];
      value = p.b * a[static_cast<size_t>(i)] + p.c * value + (i / r == i % r ? p.a : 0.0);
    }
    total = step == 0 ? q : product(r, q, total);
    if (step + 1 < p.steps) a = product(r, product(r, q, a), q);
  }
  return total;
}

void apply(const Vectors& v, const SquareMatrix& p, double factor, const float* x, float* y) {
  for (int64_t i = 0; i < v.r; ++i) {
    for (int64_t k = 0; k < v.n; ++k) {
      double sum = 0;
      for (int64_t j = 0; j < v.r; ++j)
        sum += p[static_cast<size_t>(i * v.r + j)] * static_cast<double>(x[j * v.pitch + k * v.step]);
      y[i * v.pitch + k * v.step] = static_cast<float>(factor * sum);
    }
  }
}

}  // namespace

void newton_schulz(Cpu& cpu, const lk_newton_schulz_params& p) {
  const int64_t rows = p.x.dims[p.x.rank - 2], columns = p.x.dims[p.x.rank - 1], size = rows * columns;
  const Vectors v = rows <= columns ? Vectors{rows, columns, columns, 1} : Vectors{columns, rows, 1, columns};
  parallel_for(cpu, numel(p.x) / size, size * v.r, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const float* const x = static_cast<const float*>(p.x.data) + m * size;
      const auto scale = static_cast<double>(static_cast<const float*>(p.scale.data)[m]);
      apply(v, iterated(p, v.r, products_of(v, x, scale * scale)), scale, x, static_cast<float*>(p.y.data) + m * size);
    }
  });
}

}  // namespace lk::cpu
