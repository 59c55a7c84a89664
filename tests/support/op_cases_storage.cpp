// How states of optimizers are stored: 8-bit codes by blocks, stochastic rounding.
#include <algorithm>
#include <cmath>

#include "support/op_cases.h"

namespace lh::test {
namespace {

// The dynamic map in float64, from its definition.
Values dynamic_map(bool is_signed) {
  Values map{0, 1};
  for (int i = 0; i < 7; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    for (int k = 0; k < parts; ++k) {
      const double value = std::pow(10.0, i - 6) * (0.1 + 0.9 * (k + 0.5) / parts);
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::ranges::sort(map);
  return map;
}

OpCase quantize(const Dims& dims, bool is_signed, const std::string& note) {
  const auto codes = [=](const Inputs& v) {
    const Values map = dynamic_map(is_signed), &x = v[0];
    std::vector<Values> result(2);
    for (size_t begin = 0; begin < x.size(); begin += 256) {
      const size_t end = std::min(x.size(), begin + 256);
      double scale = 0;
      for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::fabs(x[i]));
      for (size_t i = begin; i < end; ++i) {
        const auto distance = [&](double value) { return std::fabs(value - x[i] / scale); };
        result[0].push_back(static_cast<double>(std::ranges::min_element(map, {}, distance) - map.begin()));
      }
      result[1].push_back(scale);
    }
    return result;
  };
  const OpInput x{dims, is_signed ? -1e-3 : 0, 3e-3, Storage::f32, false};
  return {"quantize_blockwise/1", {x}, {{"is_signed", int64_t{is_signed}}}, 1, codes, 2, note};
}

OpCase dequantize(const Dims& dims, bool is_signed, const std::string& note) {
  const auto values = [=](const Inputs& v) {
    const Values map = dynamic_map(is_signed);
    Values y;
    for (size_t i = 0; i < v[0].size(); ++i) y.push_back(map[static_cast<size_t>(v[0][i])] * v[1][i / 256]);
    return std::vector<Values>{y};
  };
  const OpInput codes{dims, 0, 255, Storage::u8, false};
  return {"dequantize_blockwise/1",
          {codes, f32({(count_of(dims) + 255) / 256}, 0.5, 2)},
          {{"is_signed", int64_t{is_signed}}},
          1,
          values,
          1,
          note};
}

// Either neighbour may come out: the tolerance is a whole unit in the last place, not half a one.
OpCase round_stochastic(const Dims& dims) {
  const auto same = [](const Inputs& v) { return std::vector<Values>{v[0]}; };
  return {"round_stochastic/1", {f32(dims), ids({1}, 1, 1000)}, {{"seed", int64_t{7}}}, 1, same, 1, "", 1};
}

}  // namespace

std::vector<OpCase> storage_cases() {
  std::vector<OpCase> c;
  for (const bool is_signed : {false, true}) {
    const std::string note = is_signed ? "signed" : "unsigned";
    c.push_back(quantize({31, 33}, is_signed, note));
    c.push_back(quantize({1}, is_signed, note + "_one"));
    c.push_back(quantize({512}, is_signed, note + "_whole"));
    c.push_back(dequantize({31, 33}, is_signed, note));
    c.push_back(dequantize({1}, is_signed, note + "_one"));
  }
  c.push_back(round_stochastic({1}));
  c.push_back(round_stochastic({31, 33}));
  return c;
}

}  // namespace lh::test
