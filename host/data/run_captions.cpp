#include "data/run_captions.h"

namespace lh {

std::string caption_at(const RunCourse& course, const Sample& sample, int64_t micro_step, uint32_t lane) {
  return sample.rule.caption(sample.texts, sample.number(),
                             {.seed = course.seed,
                              .micro_step = micro_step,
                              .lane = lane,
                              .epoch = micro_step / course.batches_per_epoch,
                              .step = micro_step / course.micro_batches,
                              .steps = course.steps});
}

RunCaptions::RunCaptions(const Dataset& dataset, BatchOrder& order, const RunCourse& course,
                         const PreservedPrompts& preserved, int64_t most)
    : of_(dataset.samples.size()) {
  const auto add = [&](size_t i, const std::string& caption) {
    of_[i].insert(&*all_.insert(caption).first);
    if (preserved.any()) of_[i].insert(&*preserved_.insert(preserved.of(dataset.samples[i], caption)).first);
  };
  const auto few = [&] { return static_cast<int64_t>(all_.size() + preserved_.size()) <= most; };
  std::vector<bool> drawn(dataset.samples.size());
  for (size_t i = 0; i < drawn.size(); ++i) {
    const Sample& sample = dataset.samples[i];
    drawn[i] = sample.rule.varies(sample.texts);
    varying_ += drawn[i];
    if (!drawn[i]) add(i, sample.caption);
    if (sample.rule.drops()) add(i, dropped_caption);
  }
  const int64_t end = varying_ > 0 ? course.steps * course.micro_batches : 0;
  for (int64_t micro = 0; micro < end && complete_; ++micro) {
    complete_ = few();
    const Batch& batch = order.at(micro);
    for (size_t lane = 0; lane < batch.samples.size(); ++lane) {
      const auto i = static_cast<size_t>(batch.samples[lane]);
      if (drawn[i]) add(i, caption_at(course, dataset.samples[i], micro, static_cast<uint32_t>(lane)));
    }
  }
  complete_ = complete_ && few();
  for (size_t i = 0; i < drawn.size(); ++i)  // that the run does not come to
    if (of_[i].empty()) add(i, dataset.samples[i].caption);
}

RunCaptions::RunCaptions(const Dataset& dataset, const std::vector<std::string>& prompts)
    : all_(prompts.begin(), prompts.end()), of_(dataset.samples.size()) {
  for (const std::string& prompt : all_)
    for (auto& of_sample : of_) of_sample.insert(&prompt);
}

}  // namespace lh
