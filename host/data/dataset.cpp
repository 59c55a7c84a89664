// Opening the training set: which images there are, whether they can be used, and what is said about them.
#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/random.h"
#include "data/caption_files.h"
#include "data/clips.h"
#include "data/codecs.h"
#include "data/further_images.h"
#include "data/image_list.h"
#include "data/video.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// An image of a folder, with what belongs to it.
struct Candidate {
  ImageFile file;
  ImageFiles images;
  std::optional<SampleMask> mask;
  std::vector<std::string> texts;
  bool captioned = false;  // they are its own
  std::string no_text;     // why they cannot be read
  bool animated = false;
  std::string corrupt;         // why it cannot be used
  std::string unreadable;      // why the file could not be read at all
  std::exception_ptr failure;  // anything else, such as memory
};

// The further images of every candidate, as the model asks for them.
void find_images(const DatasetConfig& config, const std::string& section, const ImageKeys& keys,
                 std::vector<Candidate>& candidates, std::vector<std::string>& problems) {
  const std::vector<std::string> wrong = problems_of_images(section, config.images, keys);
  problems.insert(problems.end(), wrong.begin(), wrong.end());
  if (!wrong.empty()) return;
  std::vector<fs::path> names;
  names.reserve(candidates.size());
  for (const Candidate& candidate : candidates) names.push_back(candidate.file.path);
  for (const auto& [key, folder] : config.images) {
    const std::vector<fs::path> files = files_beside(config, key, names, problems);
    for (size_t i = 0; i < files.size(); ++i)
      if (!files[i].empty()) candidates[i].images[key].path = files[i];
  }
}

// The texts of every candidate, of which `rule` makes captions.
void read_captions(const DatasetConfig& config, const ImageList& list, const CaptionRule& rule,
                   const std::string& trigger_word, std::vector<Candidate>& candidates,
                   std::vector<std::string>& problems) {
  std::vector<fs::path> without;
  bool mark_left = false;
  for (Candidate& candidate : candidates) {
    const fs::path& image = candidate.file.path;
    try {
      candidate.texts = texts_of(image, config, list.texts);
    } catch (const Error& error) {
      candidate.no_text = error.what();
    } catch (const fs::filesystem_error& error) {
      candidate.no_text = fmt::format("caption {}: {}", caption_file(image, config).string(), error.code().message());
    }
    if (!candidate.no_text.empty()) {
      problems.push_back(candidate.no_text);
      candidate.texts.emplace_back();
    }
    candidate.captioned = !candidate.texts.empty();
    if (!candidate.captioned) {
      candidate.texts = {config.default_caption};
      without.push_back(candidate.file.path);
    }
    mark_left = mark_left || std::ranges::any_of(candidate.texts, [&](const std::string& text) {
                  return rule.plain(text).find("[trigger]") != std::string::npos;
                });
  }
  std::vector<std::string> missing;
  for (const fs::path& image : without) missing.push_back(image.filename().string());
  const std::string elsewhere = missing.empty() ? "" : captions_elsewhere(without, config);
  const bool may_be_without = !config.default_caption.empty() || config.missing_captions == "empty";
  const std::string theirs = !config.default_caption.empty()         ? config.default_caption
                             : trigger_word.empty() || config.is_reg ? ""
                                                                     : trigger_word;
  const std::string so_it_is =
      fmt::format("dataset {}: {} of {} images have no caption; theirs is {}", config.folder_path.string(),
                  missing.size(), candidates.size(), theirs.empty() ? "empty" : "\"" + theirs + "\"");
  if (may_be_without && !elsewhere.empty())
    log_warning("{}; but {}", so_it_is, elsewhere);
  else if (may_be_without && !missing.empty() && config.default_caption.empty())
    log_info("{}", so_it_is);
  else if (!missing.empty() && !may_be_without)
    problems.push_back(
        fmt::format("dataset {}: {} of {} images have no caption: {} ({}add {} beside each, or set default_caption, or "
                    "missing_captions: empty)",
                    config.folder_path.string(), missing.size(), candidates.size(), some_names(missing),
                    elsewhere.empty() ? "" : elsewhere + ", or ", caption_file("<name>", config).string()));
  if (mark_left)
    log_warning("dataset {}: captions contain \"[trigger]\" but trigger_word is not set; it is used as it stands",
                config.folder_path.string());
}

void find_masks(const DatasetConfig& config, const std::vector<fs::path>& images, std::vector<Candidate>& candidates,
                std::vector<std::string>& problems) {
  const SampleMask like{
      .file = {}, .alpha = config.alpha_mask, .invert = config.invert_mask, .least = config.mask_min_value};
  const auto add = [&](Candidate& candidate, const fs::path& file) {
    candidate.mask = like;
    candidate.mask->file.path = file;
  };
  if (config.alpha_mask) {
    if (!config.mask_path.empty())
      problems.push_back(fmt::format("dataset {}: mask_path and alpha_mask both say where images count: keep one",
                                     config.folder_path.string()));
    for (Candidate& candidate : candidates) add(candidate, candidate.file.path);
    return;
  }
  if (config.mask_path.empty()) return;
  const std::vector<fs::path> masks = masks_beside(config, images, problems);
  std::vector<std::string> without;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!masks[i].empty())
      add(candidates[i], masks[i]);
    else
      without.push_back(candidates[i].file.path.filename().string());
  }
  if (without.empty()) return;
  if (without.size() == candidates.size())
    problems.push_back(
        fmt::format("dataset {}: mask_path {} has no mask for any of the {} images (a mask has the name of "
                    "its image)",
                    config.folder_path.string(), config.mask_path.string(), candidates.size()));
  else
    log_info("dataset {}: {} of {} images have no mask and count everywhere: {}", config.folder_path.string(),
             without.size(), candidates.size(), some_names(without));
}

// What is kept of an image that can be used: "<hash> <width> <height> <1 for one with more images than one>", of a
// video "<hash> <width> <height> 0 <frames> <frames a second>".
std::string seen_text(const ImageFile& file, bool animated) {
  const std::string text =
      fmt::format("{} {} {} {}", file.content_hash, file.size.width, file.size.height, animated ? 1 : 0);
  return is_video_name(file.path) ? fmt::format("{} {} {}", text, file.frames, file.fps) : text;
}

bool fill_in(ImageFile& file, bool& animated, const std::string& seen) {
  std::istringstream words(seen);
  words >> file.content_hash >> file.size.width >> file.size.height >> animated;
  if (is_video_name(file.path)) words >> file.frames >> file.fps;
  return static_cast<bool>(words);
}

// What images are known by.
struct Known {
  const KnownGood& good;
  const OpenedImages& opened;
  SeenFiles* seen;
  const ImageKeys& keys;
};

// Fills in what the file says of itself, or why the candidate cannot be used. True for one with more images than one.
bool check_file(ImageFile& file, const Known& known, Candidate& candidate) {
  if (const auto found = known.opened.find(file.path); found != known.opened.end()) {
    file = found->second.file;
    if (!found->second.corrupt.empty()) candidate.corrupt = found->second.corrupt;
    if (!found->second.unreadable.empty()) candidate.unreadable = found->second.unreadable;
    return found->second.animated;
  }
  bool animated = false;
  if (known.seen != nullptr)
    if (const auto seen = known.seen->find(file.path); seen && fill_in(file, animated, *seen)) return animated;
  const std::optional<FileStamp> stamp = stamp_of(file.path);
  std::vector<std::byte> bytes;
  const bool video = is_video_name(file.path);
  try {
    if (!video) bytes = read_image_file(file.path);
  } catch (const Error& error) {
    candidate.unreadable = error.what();
    return false;
  }
  try {
    if (video) {
      file = open_video(file.path);
    } else {
      file.content_hash = sha256_hex(std::span(bytes));
      file.size = image_size(bytes, file.path);
      if (!known.good || !known.good(file.content_hash)) decode_image(bytes, file.path);
      animated = image_is_animated(bytes, file.path);
    }
    if (known.seen != nullptr && stamp) known.seen->note(file.path, *stamp, seen_text(file, animated));
    return animated;
  } catch (const Error& error) {
    candidate.corrupt = error.what();
    return false;
  }
}

void check_mask(ImageFile& mask, const Known& known, Candidate& candidate) {
  check_file(mask, {{}, known.opened, known.seen, known.keys}, candidate);
  const ImageSize &m = mask.size, &i = candidate.file.size;
  if (candidate.corrupt.empty() && candidate.unreadable.empty() && !same_shape(m, i))
    candidate.corrupt =
        fmt::format("mask {}: {} x {} pixels, and its image {} has {} x {}: expected the same shape",
                    mask.path.string(), m.width, m.height, candidate.file.path.filename().string(), i.width, i.height);
}

// A clip's frames are all of the video's own: none is shown twice.
void check_clip(const DatasetConfig& config, int64_t step, Candidate& candidate) {
  if (candidate.corrupt.empty() && candidate.unreadable.empty() && has_videos(config))
    candidate.corrupt = problem_of_clips(config, candidate.file, step);
}

void check_image(Candidate& candidate, const Known& known) {
  candidate.animated = check_file(candidate.file, known, candidate);
  for (auto& [key, file] : candidate.images) {
    if (known.keys.inpaint && key == inpaint_mask_key)
      check_mask(file, known, candidate);
    else
      check_file(file, known, candidate);
  }
  if (candidate.mask) check_mask(candidate.mask->file, known, candidate);
}

// All images at once on the machine's cores; each result lies in its own candidate.
void check_images(std::vector<Candidate>& candidates, const Known& known) {
  constexpr size_t most_threads = 16;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < candidates.size(); i = next++) {
      try {
        check_image(candidates[i], known);
      } catch (...) {
        candidates[i].failure = std::current_exception();
      }
    }
  };
  const size_t threads =
      std::min({most_threads, size_t{std::max(std::thread::hardware_concurrency(), 1u)}, candidates.size()});
  {
    std::vector<std::jthread> helpers;
    try {
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads than wanted: this one does the rest.
    }
    work();
  }
  for (const Candidate& candidate : candidates)
    if (candidate.failure) std::rethrow_exception(candidate.failure);
}

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

// Sorts out what cannot be used: into problems, or with a warning into the count of skipped images.
void drop_unusable(const DatasetConfig& config, std::vector<Candidate>& candidates, bool warn, int64_t& skipped,
                   std::vector<std::string>& problems) {
  const auto total = candidates.size();
  size_t unreadable = 0, corrupt = 0;
  for (const Candidate& candidate : candidates) {
    if (!candidate.unreadable.empty()) {
      problems.push_back(candidate.unreadable);
      ++unreadable;
    } else if (!candidate.corrupt.empty()) {
      ++corrupt;
      if (config.strict) {
        problems.push_back(candidate.corrupt + " [strict]");
      } else if (warn) {
        log_warning("{}; left out of the training set", candidate.corrupt);
      }
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.unreadable.empty() || !c.corrupt.empty(); });
  if (!config.strict) skipped += static_cast<int64_t>(corrupt);
  if (total > 0 && candidates.empty())
    problems.push_back(fmt::format("dataset {}: none of the {} images can be used ({} corrupt, {} unreadable)",
                                   config.folder_path.string(), total, corrupt, unreadable));
}

void add_samples(const DatasetConfig& config, const CaptionRule& rule, const std::vector<Candidate>& candidates,
                 SizeStep step, bool inpaint, Dataset& dataset) {
  for (const int64_t resolution : config.resolution) {
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
      sample.repeats = config.num_repeats;
      dataset.small +=
          config.buckets && candidate.file.size.width * candidate.file.size.height < resolution * resolution;
      for (const ClipSpec& clip : clips_of(config, candidate.file, step.frames)) {
        if (step.frames > 0) {
          sample.bucket.frames = frames_that_fit(clip.frames, step.frames);
          sample.clip = clip;
        }
        for (const bool y : {false, true})
          for (const bool x : {false, true}) {
            if ((x && !config.flip_x) || (y && !config.flip_y)) continue;
            sample.flip = {x, y};
            dataset.samples.push_back(sample);
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

bool same_shape(const ImageSize& a, const ImageSize& b) {
  return std::abs(a.width * b.height - a.height * b.width) <= std::max({a.width, a.height, b.width, b.height});
}

ImageNumbers image_numbers(const ImageCut& cut) {
  const ImageSize& size = cut.file.size;
  const CropGeometry crop = crop_geometry(size, {cut.bucket.width, cut.bucket.height}, cut.augment.at);
  const int64_t left = cut.flip.x ? crop.scaled.width - crop.left - cut.bucket.width : crop.left;
  const int64_t top = cut.flip.y ? crop.scaled.height - crop.top - cut.bucket.height : crop.top;
  const auto number = [](int64_t pixels) { return static_cast<float>(pixels); };
  return {number(size.height), number(size.width),        number(top),
          number(left),        number(cut.bucket.height), number(cut.bucket.width)};
}

// Places and colours are those of the image's content, so that a run with another seed finds them in the cache. Colours
// as kohya's scripts move them: of three images one, its hue by up to 16 degrees or its gamma by up to 5%.
ImageCut Sample::cut(int64_t variant) const {
  ImageCut made = cut();
  if (!is_augmented()) return made;
  Random random(0, Purpose::augment_variant, number(), static_cast<uint32_t>(variant));
  const double x = random.uniform(), y = random.uniform();
  if (random_crop) made.augment.at = {x, y};
  if (random_scale) made.augment.at.scale = random.uniform();
  if (!color_aug || random.uniform() > 0.33) return made;
  const bool hue = random.uniform() > 0.5;
  const double share = 2 * random.uniform() - 1;
  (hue ? made.augment.hue : made.augment.gamma) = hue ? 16 * share : 1 + 0.05 * share;
  return made;
}

std::vector<ImageCut> Sample::cuts() const {
  std::vector<ImageCut> all;
  for (int64_t i = 0; i < augment_variants; ++i) all.push_back(cut(i));
  return all;
}

std::map<Bucket, int64_t> samples_by_bucket(const std::vector<Sample>& samples) {
  std::map<Bucket, int64_t> counts;
  for (const Sample& sample : samples) counts[sample.bucket] += sample.repeats;
  return counts;
}

uint64_t content_number(const ImageFile& file) {
  const std::string& hash = file.content_hash;
  uint64_t number = 0;
  std::from_chars(hash.data(), hash.data() + std::min<size_t>(16, hash.size()), number, 16);
  return number;
}

ImageCut Sample::with_mask(ImageCut cut, int64_t number) const {
  if (inpaint_masks == 0) return cut;
  const auto given = images.find(inpaint_mask_key);
  cut.inpaint = given != images.end() ? InpaintMask{given->second} : InpaintMask{.file = {}, .number = number};
  return cut;
}

Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, SizeStep step,
                     const KnownGood& known_good, const ImageKeys& keys, const ValidationSplit& split,
                     DatasetSurvey* survey, SeenFiles* seen) {
  Dataset dataset;
  std::vector<std::string> problems;
  const std::vector<DatasetConfig> all = with_class_folders(datasets, problems);
  for (size_t i = 0; i < all.size(); ++i) {
    const DatasetConfig& config = all[i];
    const std::string& trigger = config.trigger_word.empty() ? trigger_word : config.trigger_word;
    const CaptionRule rule(config, trigger);
    if (has_videos(config) && step.frames == 0) {
      const bool frames = config.num_frames > 1;
      problems.push_back(fmt::format("datasets[{}].{}: {}: this is a model of images. Put single frames into {}", i,
                                     frames ? "num_frames" : "frame_extraction",
                                     frames ? std::to_string(config.num_frames) : config.frame_extraction,
                                     config.folder_path.string()));
      continue;
    }
    const ImageList list = list_images(config, problems);
    std::vector<Candidate> candidates(list.images.size());
    for (size_t j = 0; j < candidates.size(); ++j) candidates[j].file.path = list.images[j];
    dataset.not_read.insert(dataset.not_read.end(), list.not_read.begin(), list.not_read.end());
    find_images(config, fmt::format("datasets[{}].images", i), keys, candidates, problems);
    find_masks(config, list.images, candidates, problems);
    read_captions(config, list, rule, trigger, candidates, problems);
    check_images(candidates, {known_good, opened_by(survey, candidates), seen, keys});
    for (Candidate& candidate : candidates) check_clip(config, step.frames, candidate);
    if (survey != nullptr) note(candidates, config, i, *survey);
    drop_unusable(config, candidates, survey == nullptr, dataset.skipped, problems);
    for (const Candidate& candidate : candidates)
      if (candidate.animated) dataset.animated.push_back(candidate.file.path.filename().string());
    add_samples(config, rule, candidates, step, keys.inpaint, dataset);
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
