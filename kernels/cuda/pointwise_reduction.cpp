#include "cuda/pointwise_reduction.h"

#include <algorithm>
#include <vector>

namespace lk::cuda {

namespace {

constexpr int64_t warps_across = 64;            // wanted for each processor where rows are added
constexpr int64_t warps = 32;                   // and elsewhere: what they find has to be joined
constexpr int64_t fewest_rows_of_lane = 4;      // before columns are cut
constexpr int64_t fewest_columns_of_lane = 32;  // before a row is cut
constexpr int64_t fewest_of_warp = 128;         // elements that are worth one

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Neighbouring axes that each output keeps or reduces together.
struct Group {
  int64_t size;
  uint32_t reduced;  // by output
};

std::vector<Group> groups_of(const PointwiseProgram& program) {
  std::vector<Group> groups;
  for (int32_t axis = 0; axis < program.domain.rank; ++axis) {
    const int64_t size = program.domain.dims[axis];
    if (size == 1) continue;
    uint32_t reduced = 0;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const lk_pointwise_output& output = program.outputs[i];
      if (output.reduction != LK_POINTWISE_STORE && output.y.dims[axis] == 1) reduced |= uint32_t{1} << i;
    }
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().size *= size;
    else
      groups.push_back({size, reduced});
  }
  return groups;
}

// Sums down the columns keep a lane to its 8 columns; the others cut rows where there are too few of them.
void cut(PointwiseTasks& t, bool down, int64_t wanted) {
  t.lanes = 1;
  while (t.lanes < 32 && t.lanes * 8 < t.columns) t.lanes *= 2;
  const int64_t width = int64_t{t.lanes} * 8, at_once = 32 / t.lanes, turns = ceil_div(t.rows, at_once);
  int64_t row_slabs = 1, column_slabs = 1;
  if (down) {
    column_slabs = ceil_div(t.columns, width);
    row_slabs = std::min(wanted / (t.outer * column_slabs), turns / fewest_rows_of_lane);
  } else if (t.outer * turns >= wanted) {
    row_slabs = ceil_div(wanted, t.outer);
  } else {
    row_slabs = turns;
    column_slabs = std::min(ceil_div(wanted, t.outer * turns), ceil_div(t.columns, t.lanes * fewest_columns_of_lane));
  }
  t.slab_rows = ceil_div(turns, std::clamp<int64_t>(row_slabs, 1, turns)) * at_once;
  t.row_slabs = ceil_div(t.rows, t.slab_rows);
  t.slab_columns = ceil_div(ceil_div(t.columns, std::max<int64_t>(column_slabs, 1)), width) * width;
  t.column_slabs = ceil_div(t.columns, t.slab_columns);
  t.down = down ? 1 : 0;
  t.row_blocks = ceil_div(t.row_slabs, pointwise_warps);
  t.blocks = down ? t.row_blocks * t.column_slabs : ceil_div(t.row_slabs * t.column_slabs, pointwise_warps);
}

}  // namespace

int64_t PointwiseReduction::parts(PointwiseOver over) const {
  switch (over) {
    case PointwiseOver::columns: return tasks.column_slabs;
    case PointwiseOver::rows: return tasks.row_blocks;
    default: return tasks.blocks;
  }
}

int64_t PointwiseReduction::partial(size_t output) const {
  if (!reduced[output] || parts(over[output]) == 1) return 0;
  const int64_t results = over[output] == PointwiseOver::columns ? tasks.rows
                          : over[output] == PointwiseOver::rows  ? tasks.columns
                                                                 : 1;
  return parts(over[output]) * tasks.outer * results;
}

std::optional<PointwiseReduction> pointwise_reduction(const PointwiseProgram& program, int64_t processors) {
  uint32_t all = 0;
  PointwiseReduction plan;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    plan.reduced[i] = program.outputs[i].reduction != LK_POINTWISE_STORE;
    if (plan.reduced[i]) all |= uint32_t{1} << i;
  }
  std::vector<Group> groups = groups_of(program);
  while (groups.size() < 3) groups.insert(groups.begin(), {1, groups.empty() ? all : 0});
  if (groups.size() > 3 || groups[0].reduced != 0) return std::nullopt;
  if (groups[1].size == 1) groups[1].reduced = groups[2].reduced;  // sums of all: whole blocks join what they find
  const uint32_t rows = groups[1].reduced, columns = groups[2].reduced;
  if ((rows | columns) != all) return std::nullopt;
  if (groups[0].size > 1 && groups[1].size * groups[2].size < fewest_of_warp) return std::nullopt;
  bool across = false, down = false, both = false;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    if (!plan.reduced[i]) continue;
    const bool over_rows = (rows >> i & 1) != 0, over_columns = (columns >> i & 1) != 0;
    plan.over[i] = !over_rows ? PointwiseOver::columns : over_columns ? PointwiseOver::both : PointwiseOver::rows;
    across |= plan.over[i] == PointwiseOver::columns;
    down |= plan.over[i] == PointwiseOver::rows;
    both |= plan.over[i] == PointwiseOver::both;
  }
  PointwiseTasks& t = plan.tasks;
  t.outer = groups[0].size, t.rows = groups[1].size, t.columns = groups[2].size;
  cut(t, down, processors * (down || both ? warps : warps_across));
  int64_t counters = 0;
  const auto counted = [&](bool any, PointwiseOver over, int64_t sharing) {
    const int64_t first = counters;
    if (any && plan.parts(over) > 1) counters += t.outer * sharing;
    return static_cast<int32_t>(std::min<int64_t>(first, pointwise_arrivals));
  };
  counted(across, PointwiseOver::columns, t.row_slabs);
  t.rows_counters = counted(down, PointwiseOver::rows, t.column_slabs);
  t.both_counters = counted(both, PointwiseOver::both, 1);
  if (counters > pointwise_arrivals) return std::nullopt;
  return plan;
}

}  // namespace lk::cuda
