// The captions of a whole run: which caption each place of each batch has, and all of those that there will be, so that
// they can be encoded before the first step.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/caption_rule.h"
#include "data/preserved_prompts.h"

namespace lh {

// How a run goes through its batches.
struct RunCourse {
  uint64_t seed = 0;
  int64_t batches_per_epoch = 1, micro_batches = 1;  // of an epoch, of a step of all processes
  int64_t steps = 1;
};

std::string caption_at(const RunCourse& course, const Sample& sample, int64_t micro_step, uint32_t lane);

class RunCaptions {
 public:
  // Drawn ones are looked for until there are more than `most` captions, those of `preserved` included.
  RunCaptions(const Dataset& dataset, BatchOrder& order, const RunCourse& course, const PreservedPrompts& preserved,
              int64_t most);
  // These for each sample, in their place.
  RunCaptions(const Dataset& dataset, const std::vector<std::string>& prompts);
  // Each once.
  const std::set<std::string>& all() const { return all_; }
  const std::set<std::string>& preserved() const { return preserved_; }
  // Of both, what batches with this sample may need: one caption at least.
  const std::set<const std::string*>& of(size_t sample) const { return of_[sample]; }
  int64_t varying() const { return varying_; }  // samples whose captions are drawn
  bool complete() const { return complete_; }   // there were no more than `most`

 private:
  std::set<std::string> all_, preserved_;
  std::vector<std::set<const std::string*>> of_;
  int64_t varying_ = 0;
  bool complete_ = true;
};

}  // namespace lh
