// What a run will be, for --dry-run and its log.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "config/run_settings.h"
#include "core/bytes.h"
#include "data/image_formats.h"
#include "run/state_seconds.h"
#include "train/memory_text.h"
#include "train/prepare.h"

namespace lh {

std::string Prepared::report_data(bool whole) const {
  constexpr size_t most_buckets = 8;
  std::string lines = fmt::format("dataset    {} samples, {} skipped\n", dataset.samples.size(), dataset.skipped);
  int64_t reg = 0, masked_ones = 0, same = 0, painted = 0, drawn = 0, stills = 0, going_on = 0, with_sound = 0;
  std::set<std::tuple<std::filesystem::path, Bucket, Flip>> seen;
  for (const Sample& s : dataset.samples) {
    reg += s.is_reg ? s.repeats : 0;
    masked_ones += s.mask.has_value();
    stills += s.bucket.frames == 1;
    going_on += s.cut().goes_on;
    with_sound += s.bucket.sound > 0;
    painted += s.inpaint_masks > 0;
    drawn += s.inpaint_masks > 0 && !s.images.contains(inpaint_mask_key);
    same += !seen.emplace(s.image.path, s.bucket, s.flip).second;
  }
  const std::map<BatchKind, int64_t> buckets = samples_by_kind(dataset.samples);
  const bool batches_differ = dataset.batch_sizes().size() > 1;
  size_t shown = 0;
  for (const auto& [kind, count] : buckets)
    if (whole || buckets.size() <= most_buckets || shown + 1 < most_buckets) {
      lines += fmt::format("  bucket   {}: {} per epoch{}\n", text_of(kind.bucket), count,
                           batches_differ ? fmt::format(", in batches of {}", kind.size) : "");
      ++shown;
    }
  if (shown < buckets.size()) lines += fmt::format("  bucket   ... and {} more\n", buckets.size() - shown);
  const auto worded = std::ranges::find_if(captions->all(), [](const std::string& text) { return !text.empty(); });
  if (slider.any())
    lines += fmt::format("  slider   {}; captions, masks and weights of the loss are not used\n", slider.text());
  else
    lines += fmt::format("  captions {} different, first: \"{}\"\n", captions->all().size(),
                         worded == captions->all().end() ? "" : *worded);
  if (captions->varying() > 0)
    lines += fmt::format("           {} samples have captions that are drawn{}\n", captions->varying(),
                         captions->complete() ? "" : ", and encoded when they are used");
  if (dataset.small > 0)
    lines += fmt::format("  small    {} samples are of images smaller than the resolution, and keep their own size\n",
                         dataset.small);
  if (same > 0) lines += fmt::format("  same     {} samples are what others are at another resolution\n", same);
  if (reg > 0)
    lines +=
        fmt::format("  reg      {} per epoch are of regularization images, weight {}{}\n", reg, config.train.reg_weight,
                    dataset.unused_reg > 0 ? fmt::format("; {} more are not needed", dataset.unused_reg) : "");
  if (preserved.any())
    lines +=
        fmt::format("  kept     as without adapters: {}; {} prompts\n", preserved.text(), captions->preserved().size());
  if (masked_ones > 0)
    lines += fmt::format("  masks    {} samples{}\n", masked_ones,
                         keeps_masked() ? fmt::format("; what they hide stays as without adapters, times {}",
                                                      config.train.inverted_mask_prior_multiplier)
                                        : "");
  else if (config.train.inverted_mask_prior)
    lines += "  masks    none: there is nothing for inverted_mask_prior to keep\n";
  if (painted > 0)
    lines +=
        fmt::format("  inpaint  {} samples by masks of theirs, {} by masks that are drawn\n", painted - drawn, drawn);
  if (stills > 0 && model.recipe().shown_first_frames() && !model.recipe().starts_clips())
    lines += fmt::format("  stills   {} samples are one frame, all of which the model is shown\n", stills);
  if (going_on > 0 && model.recipe().starts_clips())
    lines += fmt::format("  clips    {} samples go on from their first frames, of which nothing is learnt\n", going_on);
  if (with_sound > 0 || dataset.silent > 0)
    lines += fmt::format("  sound    of {} samples{}\n", with_sound,
                         dataset.silent > 0 ? fmt::format("; {} others are of videos without a track, and are trained "
                                                          "without",
                                                          dataset.silent)
                                            : "");
  if (!dataset.not_read.empty())
    lines += fmt::format("  not read {} (convert them to PNG; this lora-host reads {})\n", some_names(dataset.not_read),
                         formats_that_are_read());
  if (!dataset.animated.empty())
    lines += fmt::format("  animated {}: the first image of each is used\n", some_names(dataset.animated));
  if (!dataset.validation.empty())
    lines += fmt::format("validation {} samples that are not trained on\n", dataset.validation.size());
  lines += fmt::format(
      "epochs     {} batches each; {} steps are {:.2f}\n", order->batches_per_epoch(), config.train.steps,
      static_cast<double>(config.train.steps * micro_batches) / static_cast<double>(order->batches_per_epoch()));
  return lines;
}

std::string Prepared::report(bool whole) {
  const TrainGraph& graph = plan->largest();
  const MemoryReport& memory = plan->memory;
  std::string text_report = fmt::format("model      {} {} from {}\n", model.recipe().family, model.recipe().variant,
                                        config.model.name_or_path.string());
  text_report += report_data(whole);
  std::map<std::pair<int64_t, double>, int64_t> kinds;  // rank and alpha -> modules
  for (const AdaptedModule& m : graph.modules) ++kinds[{m.rank, m.alpha}];
  text_report += fmt::format("network    {}: {} modules, {} parameters:", adapter->id(), graph.modules.size(),
                             plan->adapters->parameter_count());
  for (const auto& [kind, count] : kinds)
    text_report += kind.first > 0 ? fmt::format(" {} of rank {} and alpha {};", count, kind.first, kind.second)
                                  : fmt::format(" {} without a rank;", count);
  text_report.back() = '\n';
  for (const std::string& line : left_out_lines(graph.left_out, whole))
    text_report += fmt::format("  left out {}\n", line);
  if (config.train.phases.empty()) text_report += fmt::format("training   {}\n", RunSettings(config.train).summary());
  for (size_t i = 0; i < config.train.phases.size(); ++i) {
    const int64_t first = i == 0 ? 0 : config.train.phases[i - 1].until;
    const int64_t end = config.train.phases[i].until > 0 ? config.train.phases[i].until : config.train.steps;
    text_report += fmt::format("  phase    steps {} to {}: {}\n", first + 1, std::min(end, config.train.steps),
                               RunSettings(config.train, first).summary());
  }
  if (warm_start)
    text_report += fmt::format("  starts from {}: {} modules\n", config.network.pretrained_lora_path.string(),
                               warm_start->modules());
  if (whole)
    for (const AdaptedModule& m : graph.modules) text_report += fmt::format("  {}\n", m.name);
  if (plan->ema)
    text_report += fmt::format("average    of the weights: {}; {:.1f} MiB\n", plan->ema->text(),
                               mib(plan->adapters->whole().shape.numel() * static_cast<int64_t>(sizeof(float))));
  if (samples) text_report += fmt::format("samples    {}, decoded as {}\n", requests.size(), samples->decoding_text());
  if (const std::string shares = experts.text(); samples && !shares.empty())
    text_report += fmt::format("           {}, whose weights are read in turn\n", shares);
  else if (const std::string why = why_alone(model); samples && !why.empty())
    text_report += fmt::format("           {}\n", why);
  if (loras.differ())
    text_report +=
        "           without model.assistant_lora_path, with model.inference_lora_path: weights are read anew\n";
  text_report += fmt::format(
      "memory     {:.1f} MiB: weights {:.1f}, LoRA with gradients and optimizer {:.1f}, activations {:.1f}, workspace "
      "and inputs {:.1f}\n",
      mib(memory.total()), mib(memory.weights), mib(memory.adapters), mib(memory.activations),
      mib(memory.workspace + memory.small));
  if (!graph.activations.again.empty())
    text_report += fmt::format("           of activations, {}\n", recomputed_text(graph.activations));
  if (memory.offloaded > 0)
    text_report +=
        fmt::format("           {:.1f} MiB of activations in host memory between the passes\n", mib(memory.offloaded));
  if (memory.states > 0)
    text_report += fmt::format(
        "           {:.1f} MiB of optimizer states in host memory between the updates, for which an update is "
        "predicted to take {:.1f} ms longer\n",
        mib(memory.states), 1e3 * state_seconds(plan->optimizer->plan(), rates().rates));
  if (memory.streamed > 0)
    text_report += fmt::format(
        "           {:.1f} MiB of weights in host memory, one copy; {:.1f} MiB of the activations are the place where "
        "they arrive\n",
        mib(memory.streamed), mib(streaming.window));
  if (shares_base())
    text_report += fmt::format(
        "           the weights of the blocks are kept in parts by {} processes; at most {:.1f} MiB of the "
        "activations are the place where they arrive\n",
        processes, mib(streaming.window));
  const StepShape& largest = memory_planner().shape();
  if (dataset.batch_sizes().size() > 1)
    text_report += fmt::format("largest    of the batches: {} of {}\n", largest.batch, text_of(largest.bucket));
  text_report +=
      "budgets    and what they would cost (docs/memory.md):\n" + memory_table(memory_planner(), budgets_around(limit));
  text_report += fmt::format("           predicted by rates of the device: {}\n", rates_text(rates()));
  return text_report;
}

}  // namespace lh
