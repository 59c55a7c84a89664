// Values that have one storage are a cluster, with a place for each in numbers of elements. Walking the nodes once, a
// piece and its whole bring their clusters together where one of the two can be moved so that the piece is where the
// whole has it, and where nothing else comes to lie in one place.
#include "run/views.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "graph/op.h"
#include "ops/ops.h"
#include "run/plan.h"

namespace lh {
namespace {

constexpr int64_t dense = 0;
// A storage is held in vain where it is there for longer than this share of the graph, and holds more than so many
// times what its parts would. A shorter stretch, such as within a block's backward pass, costs less than a copy.
constexpr int64_t long_share = 64;
constexpr double most_held = 2;

struct Place {
  int64_t offset = 0, line = dense, pitch = 0;  // elements
  bool operator==(const Place&) const = default;
};

// A value and its aliases.
struct Member {
  uint32_t source;
  int64_t count;  // elements
  Place at;
  int64_t first, last = 0;  // nodes from the one that writes it to the last that reads it
  int64_t end() const { return at.offset + (at.line == dense ? count : (count / at.line - 1) * at.pitch + at.line); }
};

// A piece of a whole: `rows` times `length` neighbouring elements, `row` elements apart, from element `start` on.
struct Piece {
  int64_t rows, row, length, start;
};

Piece piece_of(const Desc& whole, const Node& node, int64_t at, int64_t extent) {
  const int64_t given = node.attrs.i("axis"), axis = given < 0 ? given + whole.shape.rank() : given;
  int64_t before = 1, after = 1;
  for (int64_t i = 0; i < whole.shape.rank(); ++i) (i < axis ? before : after) *= i == axis ? 1 : whole.shape[i];
  return {before, whole.shape[axis] * after, extent * after, at * after};
}

// Where a piece is in a whole that lies so; nothing: neither dense nor in lines.
std::optional<Place> place_of(const Piece& piece, const Place& whole) {
  if (piece.rows == 1) {
    if (whole.line == dense) return Place{whole.offset + piece.start};
    const int64_t line = piece.start / whole.line, column = piece.start % whole.line;
    const int64_t offset = whole.offset + line * whole.pitch + column;
    if (column + piece.length <= whole.line) return Place{offset};
    if (column != 0 || piece.length % whole.line != 0) return std::nullopt;
    return Place{offset, whole.line, whole.pitch};
  }
  if (whole.line == dense) return Place{whole.offset + piece.start, piece.length, piece.row};
  if (whole.line != piece.row) return std::nullopt;
  return Place{whole.offset + piece.start, piece.length, whole.pitch};
}

// Rows and columns that a member covers in a sheet of so many columns.
struct Rectangle {
  int64_t row, column, rows, columns;
};

std::optional<Rectangle> rectangle(const Member& m, int64_t origin, int64_t columns) {
  const int64_t from = m.at.offset - origin, row = from / columns, column = from % columns;
  if (from < 0) return std::nullopt;
  if (m.at.line != dense) {
    if (m.at.pitch != columns || column + m.at.line > columns) return std::nullopt;
    return Rectangle{row, column, m.count / m.at.line, m.at.line};
  }
  if (column + m.count <= columns) return Rectangle{row, column, 1, m.count};
  if (column != 0 || m.count % columns != 0) return std::nullopt;
  return Rectangle{row, 0, m.count / columns, columns};
}

// What a storage takes, and from which node to which it is there.
struct Span {
  int64_t elements = 0, first = std::numeric_limits<int64_t>::max(), last = 0;
  int64_t nodes() const { return last - first + 1; }
  double held() const { return static_cast<double>(elements) * static_cast<double>(nodes()); }
};

Span span_of(const std::vector<Member>& members) {
  Span span;
  int64_t begin = members[0].at.offset, end = 0;
  for (const Member& m : members) {
    begin = std::min(begin, m.at.offset);
    end = std::max(end, m.end());
    span.first = std::min(span.first, m.first);
    span.last = std::max(span.last, m.last);
  }
  span.elements = end - begin;
  return span;
}

Rectangle common(const Rectangle& a, const Rectangle& b) {
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  return {row, column, std::min(a.row + a.rows, b.row + b.rows) - row,
          std::min(a.column + a.columns, b.column + b.columns) - column};
}

bool empty(const Rectangle& r) { return r.rows <= 0 || r.columns <= 0; }

bool within(const Rectangle& inner, const Rectangle& outer) {
  return inner.row >= outer.row && inner.column >= outer.column && inner.row + inner.rows <= outer.row + outer.rows &&
         inner.column + inner.columns <= outer.column + outer.columns;
}

// Whether a and b have nothing in common but what lies in the piece that is in both.
bool apart_but_for(const Member& piece, const Member& a, const Member& b) {
  if (a.end() <= b.at.offset || b.end() <= a.at.offset) return true;
  int64_t columns = 0, origin = std::min({a.at.offset, b.at.offset, piece.at.offset});
  for (const Member* m : {&a, &b, &piece})
    if (m->at.line != dense) columns = m->at.pitch;
  if (columns == 0) {  // all are dense
    return std::max(a.at.offset, b.at.offset) >= piece.at.offset && std::min(a.end(), b.end()) <= piece.end();
  }
  for (const Member* m : {&a, &b, &piece})  // a sheet begins where something is that has whole rows
    if (m->at.line == dense && m->count >= columns)
      origin = m->at.offset - (m->at.offset - origin + columns - 1) / columns * columns;
  const auto ra = rectangle(a, origin, columns), rb = rectangle(b, origin, columns),
             rp = rectangle(piece, origin, columns);
  if (!ra || !rb || !rp) return false;
  const Rectangle both = common(*ra, *rb);
  // A single row beside lines: kernels, which look at where tensors begin and end, would take it for an overlap.
  if (empty(both)) return a.at.line == b.at.line || (a.at.line != dense && b.at.line != dense);
  return within(both, *rp);
}

class Sharing {
 public:
  Sharing(const Graph& graph, const std::set<Value>& external, PieceLayout pieces)
      : graph_(graph), external_(external), pieces_(pieces) {
    const size_t count = graph.value_count() + 1;
    source_.resize(count);
    cluster_.resize(count);
    writer_.resize(count, nullptr);
    readers_.resize(count);
    aliases_.resize(count);
    for (uint32_t id = 0; id < count; ++id) {
      source_[id] = cluster_[id] = id;
      if (id > 0) members_[id] = {{.source = id, .count = graph.desc(Value{id}).shape.numel(), .at = {}, .first = 0}};
      if (id > 0) aliases_[id] = {id};
    }
    for (const auto& [name, v] : graph.outputs) outputs_.insert(v);
    for (const Node& node : graph.nodes) add(node);
    note_lives();
  }

  void share(const Node& node) {
    const bool cut = is_cut(node);
    if (!cut && node.op != &concat_op) return;
    const Value whole = cut ? node.inputs[0] : node.outputs[0];
    const std::vector<Value>& parts = cut ? node.outputs : node.inputs;
    std::vector<uint32_t> clusters;
    for (const Value part : parts) clusters.push_back(cluster_[source_[part.id]]);
    const std::set<uint32_t> together = worth_joining(clusters, cluster_[source_[whole.id]]);
    int64_t at = node.op == &slice_op ? node.attrs.i("start") : 0;
    const int64_t given = node.attrs.i("axis");
    for (size_t i = 0; i < parts.size(); ++i) {
      const Shape& shape = graph_.desc(parts[i]).shape;
      const int64_t extent = shape[given < 0 ? given + shape.rank() : given];
      // A storage that is joined twice is in the whole once, and no copy may be of itself.
      if (extent > 0 && together.contains(clusters[i]) && (cut || std::ranges::count(clusters, clusters[i]) == 1))
        bring_together(source_[parts[i].id], source_[whole.id], piece_of(graph_.desc(whole), node, at, extent));
      at += extent;
    }
  }

  std::vector<View> views() const {
    std::vector<View> views(source_.size());
    for (const auto& [cluster, members] : members_) {
      const auto first = std::ranges::min_element(members, {}, [](const Member& m) { return m.at.offset; });
      const Desc& desc = graph_.desc(Value{first->source});
      if (members.size() == 1) {  // of any type, those of weights that have no elements of whole bytes too
        for (const uint32_t id : aliases_[first->source]) views[id] = {first->source, 0, dense, 0, desc.bytes()};
        continue;
      }
      const int64_t size = dtype_size(desc.dtype);
      int64_t end = 0;
      for (const Member& m : members) end = std::max(end, m.end() - first->at.offset);
      for (const Member& m : members)
        for (const uint32_t id : aliases_[m.source])
          views[id] = {first->source, (m.at.offset - first->at.offset) * size, m.at.line, m.at.pitch, end * size};
    }
    return views;
  }

 private:
  void add(const Node& node) {
    for (const Value out : node.outputs) writer_[out.id] = &node;
    for (size_t i = 0; i < node.inputs.size(); ++i) readers_[node.inputs[i].id].emplace_back(&node, i);
    if (!node.op->alias || external_.contains(node.outputs[0])) return;
    const uint32_t from = source_[node.inputs[0].id], to = node.outputs[0].id;
    source_[to] = from;
    members_.erase(to);
    aliases_[from].push_back(to);
  }

  // Counted without copies from and to host memory, so that they change nothing of how values lie.
  void note_lives() {
    int64_t& n = nodes_;
    for (const Node& node : graph_.nodes) {
      n += !is_transfer(node);
      for (const Value out : node.outputs)
        if (source_[out.id] == out.id) members_[out.id][0].first = n;
      for (const std::vector<Value>& values : {node.inputs, node.outputs})
        for (const Value v : values)
          if (v) members_[source_[v.id]][0].last = n;
    }
    for (const Value v : outputs_) members_[source_[v.id]][0].last = n;
  }

  // The parts' clusters, without those for whose sake what all of them are joined to would be held in vain: the one
  // that is there longest is left out first.
  std::set<uint32_t> worth_joining(const std::vector<uint32_t>& parts, uint32_t whole) const {
    const Span alone = span_of(members_.at(whole));
    std::map<uint32_t, Span> spans;
    for (const uint32_t part : parts)
      if (part != whole) spans.emplace(part, span_of(members_.at(part)));
    std::set<uint32_t> worth(parts.begin(), parts.end());
    for (; !spans.empty();) {
      Span all = alone;
      int64_t of_parts = 0;
      double apart = alone.held();
      for (const auto& [part, span] : spans) {
        of_parts += span.elements;
        apart += span.held();
        all.first = std::min(all.first, span.first);
        all.last = std::max(all.last, span.last);
      }
      all.elements = std::max(alone.elements, of_parts);
      const bool is_long = all.nodes() > nodes_ / long_share;
      if (!is_long || all.held() <= most_held * apart) break;
      const auto longest = std::ranges::max_element(spans, {}, [](const auto& item) { return item.second.nodes(); });
      worth.erase(longest->first);
      spans.erase(longest);
    }
    return worth;
  }

  bool owned(uint32_t source) const {  // a place in the arena, which a node writes
    return writer_[source] != nullptr && !external_.contains(Value{source}) &&
           graph_.info(Value{source}).kind != ValueKind::constant;
  }

  // Whether lines of so many elements are lines of the value and its aliases, and whoever reads or writes it takes
  // them.
  bool takes_lines(uint32_t source, int64_t line) const {
    const auto listed = [](const std::vector<size_t>& list, size_t i) { return std::ranges::count(list, i) > 0; };
    if (!is_float(graph_.desc(Value{source}).dtype)) return false;
    const Node& writer = *writer_[source];
    if (!is_cut(writer) && writer.op != &concat_op) {
      const auto out = std::ranges::find(writer.outputs, Value{source}) - writer.outputs.begin();
      if (!listed(writer.op->lines_out, static_cast<size_t>(out))) return false;
    }
    for (const uint32_t id : aliases_[source]) {
      const Shape& shape = graph_.desc(Value{id}).shape;
      int64_t columns = 1;
      for (int64_t i = shape.rank() - 1; i >= 0 && columns < line; --i) columns *= shape[i];
      if (columns != line || outputs_.contains(Value{id})) return false;
      for (const auto& [node, input] : readers_[id]) {
        if (node->op->alias ? external_.contains(node->outputs[0])
                            : !is_cut(*node) && node->op != &concat_op && !listed(node->op->lines_in, input))
          return false;
      }
    }
    return true;
  }

  // The members, moved so that what is dense at `from` lies at `to`; nothing where that cannot be.
  std::optional<std::vector<Member>> moved(const std::vector<Member>& members, int64_t from, const Place& to) const {
    std::vector<Member> result = members;
    for (Member& m : result) {
      const int64_t distance = m.at.offset - from;
      if (to.line == dense) {
        m.at.offset += to.offset - from;
        continue;
      }
      if (m.at.line != dense || distance % to.line != 0 || m.count % to.line != 0) return std::nullopt;
      m.at = {to.offset + distance / to.line * to.pitch};
      if (m.count == to.line) continue;
      m.at.line = to.line, m.at.pitch = to.pitch;
      if (!takes_lines(m.source, to.line)) return std::nullopt;
    }
    return result;
  }

  const Member& member(uint32_t source) const {
    return *std::ranges::find(members_.at(cluster_[source]), source, &Member::source);
  }

  void bring_together(uint32_t part, uint32_t whole, const Piece& piece) {
    const uint32_t a = cluster_[part], b = cluster_[whole];
    if (a == b || !owned(part) || !owned(whole)) return;
    const Place is = member(part).at;
    const std::optional<Place> wanted = place_of(piece, member(whole).at);
    if (!wanted || (pieces_ == PieceLayout::contiguous && wanted->line != dense)) return;
    std::optional<std::vector<Member>> of_part = members_.at(a), of_whole = members_.at(b);
    Place there = *wanted;
    if (is.line == dense) {
      of_part = moved(*of_part, is.offset, *wanted);
    } else if (wanted->line == dense) {
      of_whole = moved(*of_whole, wanted->offset, is);
      there = is;
    } else {
      if (is.line != wanted->line || is.pitch != wanted->pitch) return;
      of_part = moved(*of_part, is.offset, {wanted->offset});
    }
    if (!of_part || !of_whole) return;
    Member shared = member(part);
    shared.at = there;
    for (const Member& x : *of_part)
      for (const Member& y : *of_whole)
        if (!apart_but_for(shared, x, y)) return;
    of_whole->insert(of_whole->end(), of_part->begin(), of_part->end());
    const int64_t first = std::ranges::min(*of_whole, {}, [](const Member& m) { return m.at.offset; }).at.offset;
    const int64_t size = dtype_size(graph_.desc(Value{part}).dtype);
    for (const Member& m : *of_whole)
      if ((m.at.offset - first) * size % plan_alignment != 0) return;
    for (const Member& m : *of_part) cluster_[m.source] = b;
    members_[b] = std::move(*of_whole);
    members_.erase(a);
  }

  const Graph& graph_;
  const std::set<Value>& external_;
  PieceLayout pieces_;
  std::set<Value> outputs_;
  int64_t nodes_ = 0;
  // By value id:
  std::vector<uint32_t> source_;   // what it is an alias of; itself
  std::vector<uint32_t> cluster_;  // of sources
  std::vector<const Node*> writer_;
  std::vector<std::vector<std::pair<const Node*, size_t>>> readers_;
  std::vector<std::vector<uint32_t>> aliases_;       // of sources, themselves among them
  std::map<uint32_t, std::vector<Member>> members_;  // by cluster
};

}  // namespace

std::vector<View> share_storage(const Graph& graph, const std::set<Value>& external, PieceLayout pieces) {
  Sharing sharing(graph, external, pieces);
  for (const Node& node : graph.nodes) sharing.share(node);
  return sharing.views();
}

void set_strides(const View& view, lk_tensor& tensor) {
  if (view.line == dense) return;
  int64_t next = 1;
  for (int32_t i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = next;
    next = next * tensor.dims[i] == view.line ? view.pitch : next * tensor.dims[i];
  }
}

}  // namespace lh
