// The shapes of a run's batches: how many images they have, of which size, and how many rows of text. A compiled step
// serves one shape, so all of it is known before the first step.
#pragma once

#include <set>
#include <vector>

#include "data/run_captions.h"
#include "encode/text_encoding.h"

namespace lh {

struct StepShape {
  Bucket bucket;
  Sizes lengths;      // of the denoiser's graph: "text_length"
  int64_t batch = 1;  // samples
  auto operator<=>(const StepShape&) const = default;
  // What the denoiser's graph is built with: batch, height and width in latent places, lengths.
  Sizes sizes(const LatentSpec& latents) const;
};

class StepShapes {
 public:
  // Each batch has the length of its longest caption, rounded up as the recipe says; where that would make too many
  // shapes, of the longest caption of its kind. any_text: captions are encoded within the step, all at full length.
  StepShapes(const Recipe& recipe, const Dataset& dataset, const RunCaptions& captions, TextEncoding& text,
             bool any_text);
  const std::set<StepShape>& all() const { return all_; }
  StepShape of(const Batch& batch) const;

 private:
  std::vector<Sizes> lengths_;  // by sample
  std::set<StepShape> all_;
};

}  // namespace lh
