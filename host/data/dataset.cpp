// Opening the training set: samples of the images that can be used, and what is said about the others.
#include "data/dataset.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/candidates.h"
#include "data/clips.h"
#include "data/further_images.h"
#include "data/image_list.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// What a survey's `open` gives for the files of these candidates.
OpenedImages opened_by(const DatasetSurvey* survey, const std::vector<Candidate>& candidates) {
  if (survey == nullptr || !survey->open) return {};
  std::set<fs::path> files;
  for (const Candidate& candidate : candidates) {
    files.insert(candidate.file.path);
    for (const auto& [key, file] : candidate.images) files.insert(file.path);
    if (candidate.mask) files.insert(candidate.mask->file.path);
  }
  return survey->open({files.begin(), files.end()});
}

void note(const std::vector<Candidate>& candidates, const DatasetConfig& config, size_t dataset,
          DatasetSurvey& survey) {
  for (const Candidate& c : candidates)
    survey.pictures.push_back({.dataset = dataset,
                               .file = c.file,
                               .texts = c.texts,
                               .captioned = c.captioned,
                               .no_text = c.no_text,
                               .why_not = c.unreadable.empty() ? c.corrupt : c.unreadable,
                               .stops = !c.unreadable.empty() || (config.strict && !c.corrupt.empty())});
}

void add_samples(const DatasetConfig& config, const CaptionRule& rule, const std::vector<Candidate>& candidates,
                 SizeStep step, bool inpaint, const DatasetDefaults& defaults, Dataset& dataset) {
  for (size_t i = 0; i < config.resolution.size(); ++i) {
    const int64_t resolution = config.resolution[i];
    for (const Candidate& candidate : candidates) {
      Sample sample;
      sample.image = candidate.file;
      sample.images = candidate.images;
      sample.mask = candidate.mask;
      sample.caption = rule.plain(candidate.texts.front());
      sample.texts = candidate.texts;
      sample.rule = rule;
      sample.bucket = choose_bucket(candidate.file.size, resolution, step.pixels, config.buckets);
      sample.is_reg = config.is_reg;
      sample.random_crop = config.random_crop;
      sample.random_scale = config.random_scale;
      sample.color_aug = config.color_aug;
      sample.augment_variants = sample.is_augmented() ? config.augment_variants : 1;
      if (inpaint) sample.inpaint_masks = sample.images.contains(inpaint_mask_key) ? 1 : config.inpaint_masks;
      sample.loss_weight = config.loss_multiplier;
      sample.goes_on = config.do_i2v;
      sample.normalize_sound = config.audio_normalize;
      sample.repeats = config.num_repeats;
      sample.batch_size = config.batch_size_at(i, defaults.batch_size);
      dataset.small +=
          config.buckets && candidate.file.size.width * candidate.file.size.height < resolution * resolution;
      for (const ClipSpec& clip : clips_of(config, candidate.file, step.frames)) {
        if (step.frames > 0) {
          sample.bucket.frames = frames_that_fit(clip.frames, step.frames);
          sample.clip = clip;
          sample.bucket.sound = config.do_audio && defaults.sound && candidate.file.sound
                                    ? defaults.sound->rows_of(sample.bucket.frames)
                                    : 0;
        }
        for (const bool y : {false, true})
          for (const bool x : {false, true}) {
            if ((x && !config.flip_x) || (y && !config.flip_y)) continue;
            sample.flip = {x, y};
            dataset.samples.push_back(sample);
            dataset.silent += config.do_audio && sample.bucket.frames > 1 && !candidate.file.sound;
          }
      }
    }
  }
}

// As many uses of regularization samples in an epoch as of others: all of them once, then one more of each in turn.
void balance_regularization(Dataset& dataset) {
  int64_t wanted = 0, there = 0;
  std::vector<size_t> of_reg;
  for (size_t i = 0; i < dataset.samples.size(); ++i) {
    if (dataset.samples[i].is_reg)
      of_reg.push_back(i);
    else
      wanted += dataset.samples[i].repeats;
  }
  if (of_reg.empty() || wanted == 0) return;
  size_t used = 0;
  for (; used < of_reg.size() && there < wanted; ++used) there += dataset.samples[of_reg[used]].repeats;
  for (size_t i = 0; there < wanted; i = (i + 1) % of_reg.size(), ++there) ++dataset.samples[of_reg[i]].repeats;
  dataset.unused_reg = static_cast<int64_t>(of_reg.size() - used);
  for (size_t i = of_reg.size(); i > used; --i)
    dataset.samples.erase(dataset.samples.begin() + static_cast<std::ptrdiff_t>(of_reg[i - 1]));
}

// Whole images, all sizes and mirrored ones together: those whose content comes first in an order by the seed, so that
// an image that is added or taken away moves few others. Regularization images are never among them.
void set_apart(const ValidationSplit& split, Dataset& dataset, std::vector<std::string>& problems) {
  if (split.share <= 0) return;
  std::map<std::string, std::string> order;
  for (const Sample& sample : dataset.samples)
    if (!sample.is_reg)
      order[sha256_hex(fmt::format("validation;{};{}", split.seed, sample.image.content_hash))] =
          sample.image.content_hash;
  const auto count = static_cast<size_t>(split.share * static_cast<double>(order.size()));
  if (count == 0 || count == order.size()) {
    problems.push_back(
        fmt::format("train.validation_split: {} of {} images is {} for validation and {} for training: "
                    "there must be one at least for each",
                    split.share, order.size(), count, order.size() - count));
    return;
  }
  std::set<std::string> chosen;
  for (const auto& [place, content] : order)
    if (chosen.size() < count) chosen.insert(content);
  std::vector<Sample> rest;
  for (Sample& sample : dataset.samples) {
    const bool apart = !sample.is_reg && chosen.contains(sample.image.content_hash);
    (apart ? dataset.validation : rest).push_back(std::move(sample));
  }
  dataset.samples = std::move(rest);
}

}  // namespace

std::set<int64_t> Dataset::batch_sizes() const {
  std::set<int64_t> sizes;
  for (const Sample& sample : samples) sizes.insert(sample.batch_size);
  return sizes;
}

std::map<BatchKind, int64_t> samples_by_kind(const std::vector<Sample>& samples) {
  std::map<BatchKind, int64_t> counts;
  for (const Sample& sample : samples) counts[sample.kind()] += sample.repeats;
  return counts;
}

Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const DatasetDefaults& defaults, SizeStep step,
                     const KnownGood& known_good, const ImageKeys& keys, const ValidationSplit& split,
                     DatasetSurvey* survey, SeenFiles* seen) {
  Dataset dataset;
  std::vector<std::string> problems;
  const std::vector<DatasetConfig> all = with_class_folders(datasets, problems);
  for (size_t i = 0; i < all.size(); ++i) {
    const DatasetConfig& config = all[i];
    const std::string& trigger = config.trigger_word.empty() ? defaults.trigger_word : config.trigger_word;
    const CaptionRule rule(config, trigger);
    if (has_videos(config) && step.frames == 0) {
      const bool frames = config.num_frames > 1;
      problems.push_back(fmt::format("datasets[{}].{}: {}: this is a model of images. Put single frames into {}", i,
                                     frames ? "num_frames" : "frame_extraction",
                                     frames ? std::to_string(config.num_frames) : config.frame_extraction,
                                     config.folder_path.string()));
      continue;
    }
    if (const std::string wrong = config.problem_of_batch_size(); !wrong.empty()) {
      problems.push_back(fmt::format("datasets[{}].batch_size: {}", i, wrong));
      continue;
    }
    const ImageList list = list_images(config, problems);
    dataset.not_read.insert(dataset.not_read.end(), list.not_read.begin(), list.not_read.end());
    std::vector<Candidate> candidates =
        find_candidates(config, fmt::format("datasets[{}]", i), list, rule, trigger, keys, problems);
    check_candidates(config, step.frames, {known_good, opened_by(survey, candidates), seen, keys}, candidates);
    if (survey != nullptr) note(candidates, config, i, *survey);
    drop_unusable(config, candidates, survey == nullptr, dataset.skipped, problems);
    for (const Candidate& candidate : candidates)
      if (candidate.animated) dataset.animated.push_back(candidate.file.path.filename().string());
    add_samples(config, rule, candidates, step, keys.inpaint, defaults, dataset);
  }
  if (problems.empty()) set_apart(split, dataset, problems);
  balance_regularization(dataset);
  if (!datasets.empty() && problems.empty() && std::ranges::all_of(dataset.samples, &Sample::is_reg))
    problems.push_back("datasets: all of them have is_reg: expected one at least of what is to be learned");
  if (datasets.empty()) problems.push_back("datasets: expected at least one, found none (add one with folder_path)");
  if (survey != nullptr) {
    survey->datasets = all;
    survey->problems = std::move(problems);
  } else if (!problems.empty()) {
    std::string text = fmt::format("{} problem(s) with the training data:", problems.size());
    constexpr size_t limit = 50;
    for (size_t i = 0; i < problems.size() && i < limit; ++i) text += "\n  " + problems[i];
    if (problems.size() > limit) text += fmt::format("\n  ... and {} more", problems.size() - limit);
    throw Error(Code::data, text);
  }
  return dataset;
}

}  // namespace lh
