// A sampler of a plugin with its options: the graphs of its stages and the numbers of each step, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugin/part.h"

namespace lh {

class Sampler {
 public:
  // Throws lh::Error(Code::config) for options that it does not take.
  Sampler(const Offered<lh_sampler>& offered, const GivenOptions& params);

  const char* id() const { return part_->id; }
  int32_t space() const { return part_->space; }
  uint32_t stages() const { return stages_; }
  const std::vector<std::string>& carried() const { return carried_; }
  const std::vector<std::string>& scalars() const { return scalars_; }

  // Throw lh::Error(Code::plugin) that names plugin, sampler and place for whatever breaks the contract of sampler.h.
  Graph build(uint32_t stage, const Shape& latents) const;
  std::vector<double> scalar_values(const lh_levels& levels, uint32_t step, uint32_t stage) const;
  // 0: the step ends before this stage; LH_STAGE_WITHOUT_MODEL.
  double stage_sigma(const lh_levels& levels, uint32_t step, uint32_t stage) const;

 private:
  std::vector<std::string> names(const char* (*list)(void*, uint32_t), const std::string& function) const;
  void check_inputs(const Call& call, const Graph& graph, const Shape& latents) const;
  void check_outputs(const Call& call, const Graph& graph, const Shape& latents) const;

  Part<lh_sampler> part_;
  uint32_t stages_ = 1;
  std::vector<std::string> carried_, scalars_;
};

// Does a stage's graph ask for something that needs an evaluation of the model?
bool asks_model(const Graph& stage, const Sampler& sampler);

}  // namespace lh
