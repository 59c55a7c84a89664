// The pass list that turns a model into a training step of one batch shape. Reading compile.cpp is reading the host.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile/adapter_selection.h"
#include "compile/left_out.h"
#include "graph/graph.h"
#include "passes/stream.h"
#include "plugin/model.h"
#include "run/plan.h"
#include "run/recompute_ladder.h"

namespace lh {

// What is done about what the blocks' forward passes leave for their backward passes: shares, 0 to 1.
struct ActivationChoice {
  double recompute = 0;  // of the bytes that may be freed, dropped and made again, those first that cost least time
  double offload = 0;    // of the bytes that may be, in host memory meanwhile, as far as so much is kept
  auto operator<=>(const ActivationChoice&) const = default;
};

struct StepOptions {
  DType compute = DType::f32;
  std::string loss = "mse";  // as train.loss has it
  bool weighted = false;     // each sample's loss has a weight
  bool by_place = false;     // each place's of each sample has, too
  ActivationChoice activations = {};
  Rates rates = usual_rates;                // by which recomputation is chosen
  std::vector<std::string> base_gradients;  // checkpoint weights to differentiate as well
  double max_loss = 0;                      // 0: none; a batch beyond it has no gradient
  bool text_encoders = false;               // part of the step, in front of the denoiser
  bool preserves = false;                   // for other prompts, what the denoiser says without adapters (preserve.h)
  bool keeps_masked = false;                // where masks hide it, what the denoiser says without adapters (prior.h)
  Streaming streaming = {};                 // weights that stay in host memory
  std::optional<SliderConfig> slider = {};  // what is learnt instead of a target (slider.h): a weighted mse
  double differential_guidance = 1;         // the target is as many times as far from what the model says
};

// Graph inputs besides the denoiser's: "target" (like the latents, float32), "loss_scale" (float32 [1]) and, where the
// step is weighted, "loss_weight" (float32 [B], or [B, H, W, 1] by place), "loss_delta" (float32 [B]) where the loss
// has a width; where the model makes sound (the size `sound`) also "sound_target" [B, rows, C] and "sound_weight"
// [B]; with text encoders "<encoder>.input_ids" in place of text and pooled; where it preserves or keeps,
// those of preserve.h, prior.h and slider.h. Outputs: "output", "loss", and "grad.<parameter>" for every trained
// parameter.
struct TrainGraph {
  Graph graph{DType::f32};
  std::vector<AdaptedModule> modules;
  std::vector<LeftOut> left_out;  // that were to have an adapter
  KeptActivations activations;    // where something is recomputed
};

TrainGraph build_train_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select,
                             const StepOptions& options);
// The same in two parts, for whoever looks at several ways to keep one step.
class StepBeforeRecompute {
 public:
  StepBeforeRecompute(const Model& model, const Sizes& sizes, const SelectAdapter& select, const StepOptions& options);
  TrainGraph with(const ActivationChoice& choice, const Streaming& streaming);

 private:
  struct Pass {
    TrainGraph all_kept;
    std::optional<RecomputeLadder> ladder;  // made when something is dropped
    std::optional<int64_t> offloadable;     // bytes, likewise
  };
  static Pass build_pass(const Model& model, const std::vector<std::string>& roles, const Sizes& sizes,
                         const SelectAdapter& select, const StepOptions& options);
  TrainGraph kept_as(Pass& pass, const ActivationChoice& choice) const;
  const Recipe& recipe_;
  Rates rates_;
  Pass pass_;
  bool keeps_masked_;
  // Where the step keeps what the model said before: that, and for other prompts the pass that is held against it.
  std::optional<Graph> before_;
  std::optional<Pass> preserving_;
  // Where a slider is trained: the pass with adapters turned round.
  std::optional<SliderConfig> slider_;
  std::optional<Pass> mirrored_;
};
// Its forward pass alone, without dropout, with the one output "loss".
Graph build_loss_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select, const StepOptions& options);
// The passes of a graph that is only run forward: fused, weights as they are kept, adapters.
void make_forward(Graph& graph, const Model& model, const SelectAdapter& select);
// The denoiser with adapters, forward only. lists: as Model::build takes them.
Graph build_sample_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select, DType compute,
                         const SizeLists& lists = {}, const Streaming& streaming = {});

// Values of a training graph that live in memory of the caller: parameters, their gradients, inputs.
std::set<Value> external_to_step(const Graph& graph);

}  // namespace lh
