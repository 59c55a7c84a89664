// LoRA files applied for sampling: any number of them, each with a strength, beside the frozen weights.
//   W' = W + sum_i strength_i alpha_i / rank_i B_i A_i, kept as one adapter for each module whose rank is the sum of
//   ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/model.h"
#include "train/adapters.h"

namespace lh {

class LoraStack {
 public:
  // Reads every file; throws lh::Error(Code::data) naming keys that are no part of a module of the model.
  LoraStack(const Model& model, const std::vector<LoraInput>& files);
  const AdapterSpec* select(const std::string& module) const;
  // The adapters of a graph that was adapted with `select`, filled.
  Adapters load(Device& device, const Graph& graph) const;

 private:
  struct Combined {
    AdapterSpec spec;
    std::vector<float> down;                     // [rank, in]
    std::vector<std::vector<float>> up_columns;  // rank vectors of [out], scaled
  };
  void add(const Model& model, const LoraInput& input);
  std::map<std::string, Combined> modules_;
};

}  // namespace lh
