#include "data/preserved_prompts.h"

#include <algorithm>

#include "core/error.h"

namespace lh {

PreservedPrompts::PreservedPrompts(const Config& config) {
  const TrainSection& train = config.train;
  if (train.diff_output_preservation && train.blank_prompt_preservation)
    fail(Code::config,
         "train.diff_output_preservation and train.blank_prompt_preservation: a run has one of them. Set the other to "
         "false");
  if (train.blank_prompt_preservation) {
    kind_ = Kind::blank;
    multiplier_ = train.blank_prompt_preservation_multiplier;
  }
  if (!train.diff_output_preservation) return;
  const auto has_trigger = [](const DatasetConfig& dataset) { return !dataset.trigger_word.empty(); };
  if (config.trigger_word.empty() && std::ranges::none_of(config.datasets, has_trigger))
    fail(Code::config,
         "train.diff_output_preservation: true: there is no trigger word in whose place the class could stand. Set "
         "trigger_word, or use train.blank_prompt_preservation");
  if (train.train_text_encoder)
    fail(Code::config,
         "train.diff_output_preservation: true: captions are encoded before the first step, and "
         "train.train_text_encoder "
         "changes the encoders. Set one of them to false, or use train.blank_prompt_preservation");
  kind_ = Kind::word;
  word_ = train.diff_output_preservation_class;
  multiplier_ = train.diff_output_preservation_multiplier;
}

std::string PreservedPrompts::of(const Sample& sample, const std::string& caption) const {
  return kind_ == Kind::word ? sample.rule.with_word(caption, word_) : "";
}

std::string PreservedPrompts::text() const {
  switch (kind_) {
    case Kind::none: return "off";
    case Kind::blank: return fmt::format("the empty prompt, times {}", multiplier_);
    case Kind::word: return fmt::format("captions with \"{}\" for the trigger word, times {}", word_, multiplier_);
  }
  return "";
}

}  // namespace lh
