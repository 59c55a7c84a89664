// The text encoders while they are trained: they stay beside the denoiser, and prompts are encoded with the adapters as
// they are now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "encode/text_encoding.h"
#include "run/weights.h"

namespace lh {

class LiveText {
 public:
  LiveText(Device& device, const Model& model, const SelectAdapter& select, DType compute, TextEncoding& text,
           const Streaming& streaming);
  const Graph& graph() const { return graph_; }
  int64_t arena_bytes() const { return plan_.bytes; }
  const Plan& plan() const { return plan_; }
  // The arena may be shared with programs that do not run at the same time.
  void bind(std::byte* arena, const Weights& weights, const Adapters& adapters);
  // From now on `text` gives these prompts as the adapters make them now.
  void encode(const std::vector<Prompt>& prompts);

 private:
  Device& device_;
  TextEncoding& text_;
  Graph graph_;
  Plan plan_;
  std::unique_ptr<Program> program_;
};

}  // namespace lh
