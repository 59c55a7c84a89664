// Ops that move values without computing: the float64 loop is an index map from result to input.
#include <cmath>

#include "support/op_cases.h"

namespace lh::test {
namespace {

using List = std::vector<int64_t>;

Values same(const Inputs& v) { return v[0]; }

// y[index] = x[source(index)]; `source` says where, or gives an empty index for `filled`.
template <typename Source>
std::function<std::vector<Values>(const Inputs&)> moved(const Dims& x, const Dims& y, Source source,
                                                        double filled = 0) {
  return [=](const Inputs& v) {
    Values out;
    each_index(y, [&](const Dims& i) {
      const Dims from = source(i);
      out.push_back(from.empty() ? filled : v[0][place_of(x, from)]);
    });
    return std::vector<Values>{out};
  };
}

OpCase permute(const Dims& x, const List& axes) {
  Dims y;
  for (const int64_t a : axes) y.push_back(x[static_cast<size_t>(a)]);
  return {"permute/1", {{x}}, {{"axes", axes}}, 1, moved(x, y, [axes](const Dims& i) {
            Dims from(i.size());
            for (size_t k = 0; k < i.size(); ++k) from[static_cast<size_t>(axes[k])] = i[k];
            return from;
          })};
}

// Parts of the given sizes along `axis` of `dims`, and their place in the whole.
struct Parts {
  Dims whole;
  std::vector<Dims> dims;
};
Parts parts_of(Dims dims, size_t axis, const List& sizes) {
  Parts p;
  int64_t total = 0;
  for (const int64_t size : sizes) {
    dims[axis] = size;
    p.dims.push_back(dims);
    total += size;
  }
  dims[axis] = total;
  p.whole = dims;
  return p;
}

// Which part an index of the whole falls into; the index becomes one of the part.
size_t part_at(Dims& index, size_t axis, const List& sizes) {
  size_t part = 0;
  while (index[axis] >= sizes[part]) index[axis] -= sizes[part++];
  return part;
}

OpCase concat(const Dims& dims, size_t axis, const List& sizes, int64_t written_axis) {
  const Parts p = parts_of(dims, axis, sizes);
  OpCase c{"concat/1", {}, {{"axis", written_axis}}, 1, {}};
  for (const Dims& part : p.dims) c.inputs.push_back({part});
  c.reference = [=](const Inputs& v) {
    Values y;
    each_index(p.whole, [&](Dims i) {
      const size_t part = part_at(i, axis, sizes);
      y.push_back(v[part][place_of(p.dims[part], i)]);
    });
    return std::vector<Values>{y};
  };
  return c;
}

OpCase split(const Dims& dims, size_t axis, const List& sizes, int64_t written_axis) {
  const Parts p = parts_of(dims, axis, sizes);
  return {"split/1",
          {{p.whole}},
          {{"axis", written_axis}, {"sizes", sizes}},
          1,
          [=](const Inputs& v) {
            std::vector<Values> y(sizes.size());
            each_index(p.whole, [&](Dims i) {
              const double x = v[0][place_of(p.whole, i)];
              y[part_at(i, axis, sizes)].push_back(x);
            });
            return y;
          },
          sizes.size()};
}

OpCase slice(const Dims& x, size_t axis, int64_t start, int64_t length, int64_t written_axis) {
  Dims y = x;
  y[axis] = length;
  return {"slice/1", {{x}}, {{"axis", written_axis}, {"start", start}, {"length", length}}, 1, moved(x, y, [=](Dims i) {
            i[axis] += start;
            return i;
          })};
}

OpCase every(const Dims& x, int64_t step) {
  Dims y = x;
  y.back() = (x.back() + step - 1) / step;
  return {"every/1", {{x, -1, 1, Storage::tested, false}}, {{"step", step}}, 1, moved(x, y, [=](Dims i) {
            i.back() *= step;
            return i;
          })};
}

OpCase pad(const Dims& x, const List& before, const List& after, double value) {
  Dims y = x;
  for (size_t i = 0; i < x.size(); ++i) y[i] += before[i] + after[i];
  Attrs attrs{{"before", before}, {"after", after}};
  if (value != 0) attrs.set("value", value);
  return {"pad/1",
          {{x}},
          attrs,
          1,
          moved(
              x, y,
              [=](Dims i) {
                for (size_t k = 0; k < i.size(); ++k) {
                  i[k] -= before[k];
                  if (i[k] < 0 || i[k] >= x[k]) return Dims{};
                }
                return i;
              },
              value)};
}

OpCase upsample(const Dims& x) {
  return {"upsample_nearest2x/1", {{x}}, {}, 4, moved(x, {x[0], 2 * x[1], 2 * x[2], x[3]}, [](Dims i) {
            i[1] /= 2;
            i[2] /= 2;
            return i;
          })};
}

OpCase expand(const OpInput& x, const Dims& y) {
  return {"expand/1", {x}, {{"shape", y}}, 1, moved(x.dims, y, [](const Dims& i) { return i; })};
}

OpCase find_first(const Dims& dims, int64_t value) {
  return {"find_first/1", {ids(dims, 0, 9)}, {{"value", value}}, 1, [=](const Inputs& v) {
            Values y;
            for (int64_t row = 0; row < dims[0]; ++row) {
              int64_t at = 0;
              while (at < dims[1] - 1 && v[0][static_cast<size_t>(row * dims[1] + at)] != static_cast<double>(value))
                ++at;
              y.push_back(static_cast<double>(at));
            }
            return std::vector<Values>{y};
          }};
}

}  // namespace

std::vector<OpCase> shape_cases() {
  const auto identity = [](const Inputs& v) { return std::vector<Values>{same(v)}; };
  return {
      {"reshape/1", {{{31, 33}}}, {{"shape", List{33, 31}}}, 1, identity},
      {"reshape/1", {{{2, 33}}}, {{"shape", List{11, -1, 1}}}, 1, identity, 1, "inferred"},
      {"detach/1", {{{31, 33}}}, {}, 1, identity},
      permute({31, 33}, {1, 0}),
      permute({3, 31, 5}, {2, 0, 1}),
      permute({2, 1, 7, 33}, {0, 2, 1, 3}),
      concat({3, 0, 5}, 1, {1, 31, 33}, 1),
      concat({3, 5, 0}, 2, {33, 1}, -1),
      concat({0, 5}, 0, {7}, 0),
      split({3, 0, 5}, 1, {1, 31, 33}, 1),
      split({3, 0}, 1, {33, 1}, -1),
      slice({5, 33, 3}, 1, 1, 31, 1),
      slice({33, 31}, 1, 30, 1, -1),
      every({3, 33}, 11),
      every({31, 101}, 11),
      every({5}, 7),
      every({2, 3}, 1),
      pad({3, 31, 5}, {0, 1, 2}, {1, 0, 3}, 0.5),
      pad({1, 33}, {0, 0}, {0, 1}, 0),
      expand({{31, 1}}, {31, 33}),
      expand({{1, 5, 1, 3}}, {7, 5, 2, 3}),
      expand(ids({31, 1, 3}, -9, 9), {31, 33, 3}),
      upsample({1, 1, 1, 1}),
      upsample({2, 5, 3, 31}),
      find_first({33, 31}, 3),
      find_first({5, 1}, 77),
  };
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> all;
  for (const auto& group : {contraction_cases(), row_cases(), elementwise_cases(), shape_cases(), storage_cases()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace lh::test
