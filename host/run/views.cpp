// Walks the nodes once; a value that is placed within another takes what lies within it along.
#include "run/views.h"

#include <map>

#include "graph/op.h"
#include "ops/ops.h"
#include "run/plan.h"

namespace lh {
namespace {

class Sharing {
 public:
  Sharing(const Graph& graph, const std::set<Value>& external) : graph_(graph), external_(external) {
    for (uint32_t id = 0; id <= graph.value_count(); ++id) within_.push_back({id, 0});
    made_.resize(within_.size(), false);
  }

  void add(const Node& node) {
    for (const Value out : node.outputs) made_[out.id] = true;
    if (node.op->alias && !external_.contains(node.outputs[0]))
      within_[node.outputs[0].id] = {node.inputs[0].id, 0};
    else if (node.op == &split_op)
      cut(node, 0);
    else if (node.op == &slice_op)
      cut(node, node.attrs.i("start"));
    else if (node.op == &concat_op)
      join(node);
  }

  View resolve(uint32_t id) const {
    View view{id, 0};
    while (within_[view.root].root != view.root) {
      const View& next = within_[view.root];
      view = {next.root, view.offset + next.offset};
    }
    return view;
  }

 private:
  // Bytes of one step along the axis that the node cuts or joins; 0: its pieces are not contiguous.
  int64_t step_bytes(const Node& node, Value whole) const {
    const Desc& desc = graph_.desc(whole);
    const int64_t given = node.attrs.i("axis"), axis = given < 0 ? given + desc.shape.rank() : given;
    int64_t bytes = dtype_size(desc.dtype);
    for (int64_t i = 0; i < desc.shape.rank(); ++i) {
      if (i < axis && desc.shape[i] != 1) return 0;
      if (i > axis) bytes *= desc.shape[i];
    }
    return bytes;
  }

  bool owned(Value root) const {  // a place in the arena, which a node writes
    return made_[root.id] && !external_.contains(root) && graph_.info(root).kind != ValueKind::constant;
  }

  void cut(const Node& node, int64_t at) {
    const Value whole = node.inputs[0];
    const int64_t step = step_bytes(node, whole), bytes = graph_.desc(whole).bytes();
    if (step == 0 || !owned(Value{resolve(whole.id).root})) return;
    int64_t offset = at * step;
    for (const Value part : node.outputs) {
      const int64_t length = graph_.desc(part).bytes();
      if (!external_.contains(part) && offset % plan_alignment == 0 && offset + length <= bytes)
        within_[part.id] = {whole.id, offset};
      offset += length;
    }
  }

  void join(const Node& node) {
    const Value whole = node.outputs[0];
    if (step_bytes(node, whole) == 0 || external_.contains(whole)) return;
    std::map<uint32_t, int> uses;  // a storage that is joined twice is in the whole once, and no copy may be of itself
    for (const Value part : node.inputs) ++uses[resolve(part.id).root];
    int64_t offset = 0;
    for (const Value part : node.inputs) {
      const View view = resolve(part.id);
      const int64_t length = graph_.desc(part).bytes();
      const bool whole_storage = view.offset == 0 && graph_.desc(Value{view.root}).bytes() == length;
      if (owned(Value{view.root}) && whole_storage && uses[view.root] == 1 && offset % plan_alignment == 0)
        within_[view.root] = {whole.id, offset};
      offset += length;
    }
  }

  const Graph& graph_;
  const std::set<Value>& external_;
  std::vector<View> within_;  // by value id: the value that it lies within; itself where in none
  std::vector<bool> made_;    // by a node so far
};

}  // namespace

std::vector<View> share_storage(const Graph& graph, const std::set<Value>& external) {
  Sharing sharing(graph, external);
  for (const Node& node : graph.nodes) sharing.add(node);
  std::vector<View> views;
  for (uint32_t id = 0; id <= graph.value_count(); ++id) views.push_back(sharing.resolve(id));
  return views;
}

}  // namespace lh
