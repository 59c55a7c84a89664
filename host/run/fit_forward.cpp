#include "run/fit_forward.h"

#include "run/plan.h"
#include "run/weights.h"
#include "run/workspace.h"

namespace lh {

ForwardFit fit_forward(Device& device, const Graph& graph, const Checkpoint& checkpoint, int64_t room) {
  const std::vector<std::string> names = weight_names(graph, checkpoint);
  const std::vector<StreamableBlock> blocks = streamable_blocks(graph, names);
  const auto count = static_cast<int64_t>(blocks.size());
  const auto with = [&](int64_t streamed_blocks) {
    ForwardFit fit{.streaming = spread(blocks, streamed_blocks), .blocks = count, .streamed_blocks = streamed_blocks};
    Graph streamed = graph;
    stream(streamed, fit.streaming);
    const Plan plan = plan_memory(streamed, parameters(streamed));
    fit.bytes =
        constant_bytes(streamed) + workspace_bytes(device, streamed, plan) + weight_bytes(streamed, names) + plan.bytes;
    fit.streamed = streamed_bytes(streamed, names);
    return fit;
  };
  ForwardFit best = with(0);
  if (best.bytes <= room || count == 0) return best;
  const int64_t whole = best.bytes;
  best = with(count);
  if (best.bytes > room) return best.bytes < whole ? best : with(0);
  int64_t bad = 0;
  while (best.streamed_blocks - bad > 1) {
    const int64_t middle = bad + (best.streamed_blocks - bad) / 2;
    ForwardFit tried = with(middle);
    if (tried.bytes <= room)
      best = std::move(tried);
    else
      bad = middle;
  }
  return best;
}

}  // namespace lh
