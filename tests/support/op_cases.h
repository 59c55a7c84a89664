// The table of ops_test.cpp: for every op of the catalogue its inputs, attributes and a plain float64 loop.
// Sizes are odd (1, 31, 33 and small primes), so that no kernel meets only full blocks.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lh::test {

using Values = std::vector<double>;
using Inputs = std::vector<Values>;
using Dims = std::vector<int64_t>;

enum class Storage { tested, f32, i32, absent };  // the type that the test loops over, or a fixed one

struct OpInput {
  Dims dims;
  double low = -1, high = 1;
  Storage storage = Storage::tested;
  bool gradient = true;  // whether a gradient flows into it
};

struct OpCase {
  std::string op;
  std::vector<OpInput> inputs;
  Attrs attrs;
  int64_t depth;  // the longest sum behind one element of a result
  std::function<std::vector<Values>(const Inputs&)> reference;
  size_t results = 1;
  std::string note;  // what is special, for the test's name
};

inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.op << " " << c.note; }

inline OpInput f32(Dims dims, double low = -1, double high = 1) {
  return {std::move(dims), low, high, Storage::f32, false};
}
inline OpInput ids(Dims dims, int64_t low, int64_t high) {
  return {std::move(dims), static_cast<double>(low), static_cast<double>(high), Storage::i32, false};
}
inline const OpInput absent{{}, 0, 0, Storage::absent, false};

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

std::vector<OpCase> contraction_cases();  // linear, conv2d, matmul, embedding, gather, attention
std::vector<OpCase> row_cases();          // softmax, norms, rope, timestep_embedding, reductions, losses, adamw_update
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> op_cases();  // all of them

}  // namespace lh::test
