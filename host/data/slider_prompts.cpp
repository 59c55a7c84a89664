#include "data/slider_prompts.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

// Another loss, or what belongs to the captions that a slider does not have.
const char* beside(const TrainSection& train) {
  if (train.train_text_encoder) return "train.train_text_encoder: true";
  if (train.diff_output_preservation) return "train.diff_output_preservation: true";
  if (train.blank_prompt_preservation) return "train.blank_prompt_preservation: true";
  if (train.inverted_mask_prior) return "train.inverted_mask_prior: true";
  if (train.do_differential_guidance) return "train.do_differential_guidance: true";
  if (train.max_loss > 0) return "train.max_loss";
  if (train.loss != "mse") return "train.loss, which is the squared error of a slider";
  if (train.validation_split > 0) return "train.validation_split";
  return nullptr;
}

}  // namespace

SliderPrompts::SliderPrompts(const Config& config) : slider_(config.slider) {
  if (!slider_.on()) {
    if (!slider_.target_class.empty() || slider_.anchor_class)
      fail(Code::config,
           "slider: there is nothing that the class is moved to. Set slider.positive_prompt and "
           "slider.negative_prompt");
    return;
  }
  if (slider_.positive_prompt == slider_.negative_prompt)
    fail(Code::config,
         "slider.positive_prompt and slider.negative_prompt are both \"{}\", expected two prompts: the slider is the "
         "way from one to the other",
         slider_.positive_prompt);
  if (const char* other = beside(config.train))
    fail(Code::config,
         "slider: prompts are encoded before the first step, and its loss is its own, beside which there is no {}. "
         "Remove that, or the slider",
         other);
}

std::vector<std::string> SliderPrompts::all() const {
  std::vector<std::string> prompts;
  const auto add = [&](const std::string& prompt) {
    if (std::ranges::find(prompts, prompt) == prompts.end()) prompts.push_back(prompt);
  };
  if (!any()) return prompts;
  for (const std::string& prompt : {slider_.target_class, slider_.positive_prompt, slider_.negative_prompt})
    add(prompt);
  if (slider_.anchor_class) add(*slider_.anchor_class);
  return prompts;
}

std::string SliderPrompts::text() const {
  if (!any()) return "";
  std::string text = fmt::format("\"{}\" to \"{}\" at 1, to \"{}\" at -1, guidance strength {}", slider_.target_class,
                                 slider_.positive_prompt, slider_.negative_prompt, slider_.guidance_strength);
  if (slider_.anchor_class)
    text += fmt::format("; \"{}\" stays, times {}", *slider_.anchor_class, slider_.anchor_strength);
  return text;
}

}  // namespace lh
