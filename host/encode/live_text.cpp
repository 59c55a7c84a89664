#include "encode/live_text.h"

namespace lh {

LiveText::LiveText(Device& device, const Model& model, const SelectAdapter& select, DType compute, TextEncoding& text,
                   const Streaming& streaming)
    : device_(device), text_(text), graph_(text.conditioner(compute)) {
  make_forward(graph_, model, select);
  stream(graph_, streaming);
  plan_ = plan_memory(graph_, parameters(graph_));
}

void LiveText::bind(std::byte* arena, const Weights& weights, const Adapters& adapters) {
  Externals externals = weights.bind(graph_);
  adapters.bind(graph_, externals, adapters.shown());
  program_ = std::make_unique<Program>(device_, graph_, plan_, arena, externals);
}

void LiveText::encode(const std::vector<Prompt>& prompts) {
  for (const Prompt& prompt : prompts) {
    text_.set_inputs(*program_, prompt);
    program_->run();
    text_.give(prompt, text_.conditioning(*program_));
  }
}

}  // namespace lh
