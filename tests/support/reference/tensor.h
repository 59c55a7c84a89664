// Tensors of the float64 references: values in row-major order beside their dims. The references are the plainest loops
// that say what an operation computes; the tables of ops (op_cases.h) and of kernels (kernel_cases.h) both use them.
#pragma once

#include <cstdint>
#include <vector>

namespace lh::test::reference {

using Values = std::vector<double>;
using Dims = std::vector<int64_t>;

inline int64_t count_of(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

// Place of `index` in a tensor of `dims`, right-aligned; axes of 1 are repeated.
inline size_t place_of(const Dims& dims, const Dims& index) {
  int64_t place = 0;
  for (size_t i = 0; i < dims.size(); ++i)
    place = place * dims[i] + (dims[i] == 1 ? 0 : index[index.size() - dims.size() + i]);
  return static_cast<size_t>(place);
}

// Calls visit(index) for every index of `dims`, the last axis fastest.
template <typename Visit>
void each_index(const Dims& dims, Visit visit) {
  Dims index(dims.size(), 0);
  for (int64_t n = count_of(dims); n > 0; --n) {
    visit(index);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++index[axis] < dims[axis]) break;
      index[axis] = 0;
    }
  }
}

// The shape that a and b have when they are repeated to fit each other, right-aligned.
inline Dims broadcast(const Dims& a, const Dims& b) {
  Dims dims = a.size() > b.size() ? a : b;
  const Dims& shorter = a.size() > b.size() ? b : a;
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& d = dims[dims.size() - shorter.size() + i];
    if (d == 1) d = shorter[i];
  }
  return dims;
}

}  // namespace lh::test::reference
