#include "passes/factored_weight.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr double least_share = 1.0 / 1024;  // of W's own sum of squares

// rows (W + scale up down) columns, or without W.
struct Term {
  bool base = false;  // with W
  FactoredWeight factors = {};
  bool is_scaled() const { return factors.rows || factors.columns; }
  bool has_product() const { return static_cast<bool>(factors.up); }
};

class Reader {
 public:
  Reader(Graph& graph, const FrozenWeight& base, int32_t scope)
      : graph_(graph), base_(base), scope_(scope), shape_(graph.desc(base.weight).shape) {}

  // The nodes once more, behind what the graph has, with sums of squares rewritten.
  void rewrite(std::vector<Node> nodes) {
    for (Node& node : nodes) {
      for (Value& in : node.inputs)
        if (const auto found = instead_.find(in); found != instead_.end()) in = found->second;
      for (const Value out : node.outputs) maker_[out] = node;
      if (const auto sum = sum_of_squares(node))
        instead_[node.outputs[0]] = *sum;
      else
        graph_.nodes.push_back(std::move(node));
    }
  }

  std::optional<FactoredWeight> whole(Value result) {
    const std::optional<Term> term = read(result);
    if (!term || !term->base) return std::nullopt;
    if (term->has_product()) {
      const int64_t rank = graph_.desc(term->factors.down).shape[0], out = shape_[0], in = shape_[1];
      if (4 * rank * (in + out) > 3 * in * out) return std::nullopt;
    }
    return term->factors;
  }

 private:
  Value emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) {
    return graph_.add(op, std::move(inputs), std::move(attrs), scope_)[0];
  }
  Value times(Value v, double scale) { return emit(affine_op, {v}, {{"scale", scale}, {"shift", 0.0}}); }
  Value cast(Value v, DType dtype) { return emit(cast_op, {v}, {{"dtype", static_cast<int64_t>(dtype)}}); }
  Value shaped(Value v, std::vector<int64_t> shape) { return emit(reshape_op, {v}, {{"shape", std::move(shape)}}); }
  Value product(Value a, Value b, bool transpose_a, bool transpose_b) {
    return emit(matmul_op, {a, b}, {{"transpose_a", int64_t{transpose_a}}, {"transpose_b", int64_t{transpose_b}}});
  }
  Shape shape_of(Value v) const { return graph_.desc(v).shape; }

  std::optional<Term> read(Value v) {
    if (v == base_.weight) return Term{.base = true};
    const auto known = terms_.find(v);
    if (known != terms_.end()) return known->second;
    const auto maker = maker_.find(v);
    const bool readable = maker != maker_.end() && graph_.desc(v) == Desc{DType::f32, shape_};
    return terms_[v] = readable ? read(Node(maker->second)) : std::nullopt;
  }

  std::optional<Term> read(const Node& node) {
    const auto in = [&](size_t i) { return node.inputs[i]; };
    if (node.op == &reshape_op) return shape_of(in(0)) == shape_ ? read(in(0)) : std::nullopt;
    if (node.op == &matmul_op) return pair(node);
    if (node.op == &affine_op)
      return node.attrs.f("shift") == 0 ? scaled(read(in(0)), node.attrs.f("scale")) : std::nullopt;
    if (node.op == &add_op) return sum(read(in(0)), read(in(1)));
    if (node.op == &sub_op) return sum(read(in(0)), scaled(read(in(1)), -1));
    if (node.op == &div_op) return stretched(in(0), reciprocal(in(1)));
    if (node.op != &mul_op) return std::nullopt;
    if (shape_of(in(0)) == shape_ && shape_of(in(1)) == shape_) return inner(read(in(0)), read(in(1)));
    return shape_of(in(0)) == shape_ ? stretched(in(0), in(1)) : stretched(in(1), in(0));
  }

  std::optional<Term> pair(const Node& node) {
    const bool ta = node.attrs.i("transpose_a") != 0, tb = node.attrs.i("transpose_b") != 0;
    const auto upright = [&](Value v, bool transposed) {
      return transposed ? emit(permute_op, {v}, {{"axes", std::vector<int64_t>{1, 0}}}) : v;
    };
    return Term{.factors = {.up = upright(node.inputs[0], ta), .down = upright(node.inputs[1], tb)}};
  }

  static std::optional<Term> scaled(std::optional<Term> term, double scale) {
    if (!term || scale == 1) return term;
    if (term->base) return std::nullopt;
    term->factors.scale *= scale;
    return term;
  }

  // Factors of rows and columns belong to the matrices, where W is not among what they multiply.
  std::optional<Term> absorbed(std::optional<Term> term) {
    if (!term || !term->is_scaled()) return term;
    if (term->base) return std::nullopt;
    FactoredWeight& f = term->factors;
    if (f.rows) f.up = emit(mul_op, {f.up, f.rows});
    if (f.columns) f.down = emit(mul_op, {f.down, f.columns});
    f.rows = f.columns = {};
    return term;
  }

  std::optional<Term> sum(std::optional<Term> a, std::optional<Term> b) {
    a = absorbed(a), b = absorbed(b);
    if (!a || !b || (a->base && b->base) || (a->has_product() && b->has_product())) return std::nullopt;
    Term both = a->has_product() ? *a : *b;
    both.base = a->base || b->base;
    return both;
  }

  // (up down) * (up' down') = [up_p up'_q] [down_p down'_q] over all pairs p, q
  std::optional<Term> inner(std::optional<Term> a, std::optional<Term> b) {
    a = absorbed(a), b = absorbed(b);
    if (!a || !b || a->base || b->base) return std::nullopt;
    const FactoredWeight &f = a->factors, &g = b->factors;
    const int64_t p = shape_of(f.down)[0], q = shape_of(g.down)[0], out = shape_[0], in = shape_[1];
    const Value up = emit(mul_op, {shaped(f.up, {out, p, 1}), shaped(g.up, {out, 1, q})});
    const Value down = emit(mul_op, {shaped(f.down, {p, 1, in}), shaped(g.down, {1, q, in})});
    return Term{
        .factors = {.up = shaped(up, {out, p * q}), .down = shaped(down, {p * q, in}), .scale = f.scale * g.scale}};
  }

  // The factors may be those of all rows, or of all columns.
  std::optional<Term> stretched(Value v, Value factors) {
    std::optional<Term> term = read(v);
    if (!term || !factors) return std::nullopt;
    const Shape shape = shape_of(factors);
    const bool rows = shape == Shape{shape_[0], 1}, columns = shape == Shape{1, shape_[1]};
    if (rows == columns) return std::nullopt;
    Value& all = rows ? term->factors.rows : term->factors.columns;
    all = all ? emit(mul_op, {all, factors}) : factors;
    return term;
  }

  Value reciprocal(Value v) {
    if (shape_of(v) == shape_) return {};
    const float one = 1;
    return emit(div_op, {graph_.add_constant(HostTensor::from_floats({1}, std::span(&one, 1))), v});
  }

  std::optional<Value> sum_of_squares(const Node& node) {
    if (node.op != &sum_op || node.attrs.list("axes").size() != 1) return std::nullopt;
    const auto squares = maker_.find(node.inputs[0]);
    if (squares == maker_.end() || squares->second.op != &square_op) return std::nullopt;
    const std::optional<Term> term = read(squares->second.inputs[0]);
    if (!term || !term->base || !term->has_product() || term->is_scaled()) return std::nullopt;
    return sum_of_squares(term->factors, axis_of(graph_.desc(node.inputs[0]), node.attrs.list("axes")[0]));
  }

  Value sum_of_squares(const FactoredWeight& f, int64_t axis) {
    const Attrs over{{"axes", std::vector<int64_t>{axis}}};
    const bool of_rows = axis == 1;
    const Value frozen = base_.computed(), own = emit(sum_op, {emit(square_op, {base_.weight})}, over);
    const DType type = graph_.desc(frozen).dtype;
    // What is summed up with the one matrix: the other's product with Z, [out, r] or [r, in].
    const Value with = of_rows ? f.up : f.down, other = of_rows ? f.down : f.up;
    const Value through =
        of_rows ? product(frozen, cast(other, type), false, true) : product(cast(other, type), frozen, true, false);
    const Value gram = of_rows ? product(other, other, false, true) : product(other, other, true, false);
    const Value half =
        times(of_rows ? product(with, gram, false, false) : product(gram, with, false, false), f.scale / 2);
    const Value mixed = emit(mul_op, {with, emit(add_op, {cast(through, DType::f32), half})});
    const Value moved = emit(add_op, {own, times(emit(sum_op, {mixed}, over), 2 * f.scale)});
    return emit(max_op, {moved, times(own, least_share)});
  }

  Graph& graph_;
  const FrozenWeight& base_;
  int32_t scope_;
  Shape shape_;  // [out, in]
  std::map<Value, Node> maker_;
  std::map<Value, std::optional<Term>> terms_;
  std::map<Value, Value> instead_;  // of sums that were rewritten
};

}  // namespace

std::optional<FactoredWeight> factor_weight(Graph& graph, size_t first, Value result, const FrozenWeight& base,
                                            int32_t scope) {
  const Shape shape = graph.desc(base.weight).shape;
  if (shape.rank() != 2 || shape[0] == 1 || shape[1] == 1) return std::nullopt;
  const std::vector<Node> fragment(graph.nodes.begin() + static_cast<int64_t>(first), graph.nodes.end());
  graph.nodes.resize(first);
  Reader reader(graph, base, scope);
  reader.rewrite(fragment);
  const std::optional<FactoredWeight> factored = reader.whole(result);
  if (factored) return factored;
  graph.nodes.resize(first);
  graph.nodes.insert(graph.nodes.end(), fragment.begin(), fragment.end());
  return std::nullopt;
}

}  // namespace lh
