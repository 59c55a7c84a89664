// How the caption of one use of an image is made of the texts that belong to the image: one of them, wildcards, tags in
// a new order, fewer tags, the trigger word. Every draw is a function of (seed, micro-step, place in the batch).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace lh {

// The caption that stands in for a dropped one.
inline const std::string dropped_caption;

// Where in a run a caption is used.
struct CaptionUse {
  uint64_t seed = 0;
  int64_t micro_step = 0;  // of the run
  uint32_t lane = 0;       // place in the batch
  int64_t epoch = 0;       // from 0
  int64_t step = 0, steps = 1;
};

class CaptionRule {
 public:
  CaptionRule() = default;
  // Throws lh::Error(Code::config) for replacements and random triggers that are none.
  CaptionRule(const DatasetConfig& dataset, std::string trigger_word);

  // Does the caption of one of these texts differ from use to use, being dropped aside?
  bool varies(const std::vector<std::string>& texts) const;
  bool drops() const { return dropout_rate_ > 0 || every_n_epochs_ > 0; }
  // texts: one at least. image: a number of its own for each image, so that its variants are the same wherever it is.
  std::string caption(const std::vector<std::string>& texts, uint64_t image, const CaptionUse& use) const;
  // The caption where nothing is drawn.
  std::string plain(const std::string& text) const;
  // A caption with this word in the place of the trigger word.
  std::string with_word(const std::string& caption, const std::string& word) const;
  // Everything that decides what is made of a text, in one line: a run can only be resumed with the same.
  std::string text() const;

 private:
  bool dropped(const CaptionUse& use) const;
  bool changes_tags() const { return shuffle_ != "false" || tag_dropout_ > 0 || warmup_step_ > 0; }
  std::string tags(const std::string& caption, const CaptionUse& use, class Random& random) const;
  std::string dressed(std::string text) const;  // with replacements, prefix and suffix
  void add_random_triggers(std::string& caption, class Random& random) const;
  std::string finished(std::string caption) const;  // with the trigger word

  std::string trigger_, prefix_, suffix_, shuffle_ = "false";
  std::string separator_ = ",", keep_separator_, secondary_;
  bool in_front_ = true;  // a caption without the trigger word gets it
  bool wildcards_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  std::vector<std::string> random_triggers_;
  int64_t random_triggers_max_ = 1;
  int64_t keep_ = 0, warmup_min_ = 1, every_n_epochs_ = 0, variants_ = 0;
  double dropout_rate_ = 0, tag_dropout_ = 0, warmup_step_ = 0;
};

}  // namespace lh
