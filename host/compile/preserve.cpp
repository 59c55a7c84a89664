#include "compile/preserve.h"

#include "compile/joined_passes.h"

namespace lh {

std::string preserved_name(const std::string& input) { return "preserved." + input; }

void preserve(TrainGraph& step, const Graph& base, const TrainGraph& kept, const Recipe& recipe) {
  Graph& graph = step.graph;
  JoinedPasses passes(graph);
  const auto input = [&](const std::string& name, const Desc& desc) {
    return shared_input(graph, recipe.of_prompt(name) ? preserved_name(name) : name, desc);
  };
  const Value prior = passes.say(base, input);
  passes.learn(kept.graph, [&](const std::string& name, const Desc& desc) {
    if (name == "target") return prior;
    return name == "loss_weight" ? shared_input(graph, preserved_weight, desc) : input(name, desc);
  });
  passes.finish();
}

}  // namespace lh
