// Ops over rows: softmax, norms, positions, reductions, losses, and the fused optimizer step.
#include <algorithm>
#include <cmath>

#include "support/op_cases.h"
#include "support/reference/rows.h"

namespace lh::test {
namespace {

using List = std::vector<int64_t>;

OpCase softmax(const Dims& dims) {
  return {"softmax/1", {{dims, -4, 4}}, {}, dims.back(), [=](const Inputs& v) {
            return std::vector<Values>{reference::softmax(v[0], dims.back())};
          }};
}

struct Norm {
  std::string op;
  Dims dims;
  bool weight, bias;
  int64_t groups = 1;  // group_norm
};

OpCase norm(const Norm& n) {
  const int64_t channels = n.dims.back();
  constexpr double eps = 1e-3;
  const bool grouped = n.op == "group_norm/1";
  OpCase c{n.op, {{n.dims}}, {{"eps", eps}}, grouped ? count_of(n.dims) / n.dims[0] / n.groups : channels, {}};
  c.note = n.bias ? n.weight ? "weight_bias" : "bias" : n.weight ? "weight" : "plain";
  if (grouped) c.attrs.set("groups", n.groups);
  if (n.weight) c.inputs.push_back({{channels}});
  if (!n.weight && n.bias) c.inputs.push_back(absent);
  if (n.bias) c.inputs.push_back({{channels}});
  const reference::Norm law{n.dims, eps, n.op != "rms_norm/1", grouped ? n.groups : 0};
  c.reference = [=](const Inputs& v) {
    const Values none;
    return std::vector<Values>{reference::norm(law, v[0], n.weight ? v[1] : none, n.bias ? v[2] : none)};
  };
  return c;
}

OpCase rope(const Dims& x, bool own_tables, bool interleaved) {
  const reference::Rope r{x, own_tables, interleaved};
  Attrs attrs;
  if (!interleaved) attrs.set("interleaved", int64_t{0});
  return {"rope/1",
          {{x}, f32(r.table()), f32(r.table())},
          attrs,
          2,
          [=](const Inputs& v) { return std::vector<Values>{reference::rope(r, v[0], v[1], v[2])}; },
          1,
          interleaved ? "interleaved" : "halves"};
}

OpCase timestep_embedding(int64_t batch, int64_t dim, const Attrs& attrs, double period, double scale, bool sin_first) {
  OpCase c{"timestep_embedding/1", {f32({batch}, 0, 1)}, attrs, 1, {}};
  c.attrs.set("dim", dim);
  c.reference = [=](const Inputs& v) {
    return std::vector<Values>{reference::timestep_embedding(v[0], dim, period, scale, sin_first)};
  };
  return c;
}

OpCase reduce(const std::string& op, const OpInput& in, const List& axes) {
  const Dims x = in.dims;
  Dims y = x;
  for (const int64_t axis : axes) y[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis)] = 1;
  const int64_t terms = count_of(x) / count_of(y);
  return {op, {in}, {{"axes", axes}}, terms, [=](const Inputs& v) {
            Values sums = reference::reduce_sum(x, y, v[0]);
            if (op == "mean/1")
              for (double& s : sums) s /= static_cast<double>(terms);
            return std::vector<Values>{sums};
          }};
}

OpCase amax(const OpInput& in, const List& axes) {
  const Dims x = in.dims;
  Dims y = x;
  for (const int64_t axis : axes) y[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis)] = 1;
  return {"amax/1", {in}, {{"axes", axes}}, 1, [=](const Inputs& v) {
            return std::vector<Values>{reference::reduce_max(x, y, v[0])};
          }};
}

OpCase loss(const std::string& op, const Dims& dims, bool weighted, double delta) {
  OpCase c{op, {{dims}, f32(dims, -2, 2)}, {}, count_of(dims), {}};
  c.note = weighted ? "weighted" : "plain";
  if (delta != 1) c.attrs.set("delta", delta);
  if (weighted) c.inputs.push_back(f32({dims[0]}, 0, 2));
  c.reference = [=](const Inputs& v) {
    const lk_loss_kind kind = op == "mse/1" ? LK_MSE : LK_HUBER;
    return std::vector<Values>{{reference::loss(kind, {delta}, v[0], v[1], weighted ? v[2] : Values{})}};
  };
  return c;
}

OpCase adamw(int64_t count) {
  const double b1 = 0.8, b2 = 0.99, eps = 1e-6, decay = 0.1;
  return {"adamw_update/1",
          {f32({count}), f32({count}), f32({count}), f32({count}, 0.01, 1), f32({1}, 0.02, 0.02), f32({1}, 3, 3)},
          {{"beta1", b1}, {"beta2", b2}, {"eps", eps}, {"weight_decay", decay}},
          4,
          [=](const Inputs& v) {
            std::vector<Values> out(3);
            const double lr = v[4][0], step = v[5][0];
            for (size_t i = 0; i < v[0].size(); ++i) {
              const double m = b1 * v[2][i] + (1 - b1) * v[1][i], s = b2 * v[3][i] + (1 - b2) * v[1][i] * v[1][i];
              const double mean = m / (1 - std::pow(b1, step)), square = s / (1 - std::pow(b2, step));
              out[0].push_back(v[0][i] * (1 - lr * decay) - lr * mean / (std::sqrt(square) + eps));
              out[1].push_back(m);
              out[2].push_back(s);
            }
            return out;
          },
          3};
}

}  // namespace

std::vector<OpCase> row_cases() {
  return {
      softmax({31, 33}),
      softmax({2, 3, 1}),
      norm({"layer_norm/1", {31, 33}, false, false}),
      norm({"layer_norm/1", {2, 3, 31}, true, true}),
      norm({"layer_norm/1", {3, 33}, false, true}),
      norm({"rms_norm/1", {31, 33}, false, false}),
      norm({"rms_norm/1", {2, 3, 31}, true, false}),
      norm({"group_norm/1", {2, 5, 3, 6}, true, true, 3}),
      norm({"group_norm/1", {1, 33, 31}, false, false, 1}),
      rope({2, 5, 3, 8}, false, true),
      rope({2, 5, 3, 6}, true, true),
      rope({1, 31, 1, 2}, false, false),
      rope({1, 3, 2, 66}, true, false),
      timestep_embedding(3, 34, {{"scale", 1000.0}}, 10000, 1000, false),
      timestep_embedding(1, 2, {{"max_period", 100.0}, {"sin_first", int64_t{1}}}, 100, 1, true),
      reduce("sum/1", {{31, 33}}, {0, 1}),
      reduce("sum/1", {{3, 31, 5}}, {1}),
      reduce("sum/1", {{3, 5, 33}}, {0, -1}),
      reduce("sum/1", ids({3, 31, 5}, -9, 9), {1}),
      reduce("sum/1", ids({31, 33}, -9, 9), {0, 1}),
      reduce("mean/1", {{31, 33}}, {-1}),
      reduce("mean/1", {{2, 3, 31}}, {0, 2}),
      amax({{31, 33}}, {0, 1}),
      amax({{3, 31, 5}}, {1}),
      amax({{3, 5, 33}}, {0, -1}),
      amax({{5, 9001}}, {1}),
      loss("mse/1", {31, 33}, false, 1),
      loss("mse/1", {3, 7, 5}, true, 1),
      loss("huber/1", {31, 33}, false, 1),
      loss("huber/1", {3, 31}, true, 0.5),
      adamw(1),
      adamw(33),
  };
}

}  // namespace lh::test
