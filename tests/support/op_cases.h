// The table of ops_test.cpp: for every op of the catalogue its inputs, attributes and a plain float64 loop; loops that
// the tests of the kernels need as well are in support/reference.
// Sizes are odd (1, 31, 33 and small primes), so that no kernel meets only full blocks.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "support/reference/tensor.h"

namespace lh::test {

using reference::count_of;
using reference::Dims;
using reference::each_index;
using reference::place_of;
using reference::Values;
using Inputs = std::vector<Values>;

enum class Storage { tested, f32, i32, u8, absent };  // the type that the test loops over, or a fixed one

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
  int inner = 0;     // intermediates of the size of the largest result that a kernel may round to the storage type
};

inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.op << " " << c.note; }

inline OpInput f32(Dims dims, double low = -1, double high = 1) {
  return {std::move(dims), low, high, Storage::f32, false};
}
inline OpInput ids(Dims dims, int64_t low, int64_t high) {
  return {std::move(dims), static_cast<double>(low), static_cast<double>(high), Storage::i32, false};
}
inline const OpInput absent{{}, 0, 0, Storage::absent, false};

std::vector<OpCase> contraction_cases();  // linear, conv2d, matmul, embedding, gather, attention
std::vector<OpCase> row_cases();          // softmax, norms, rope, timestep_embedding, reductions, losses, adamw_update
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> storage_cases();  // quantize_blockwise, dequantize_blockwise, round_stochastic
std::vector<OpCase> op_cases();       // all of them

}  // namespace lh::test
