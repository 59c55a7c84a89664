// What belongs to each image of a list is found: further images, masks and texts.
#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "data/candidates.h"
#include "data/caption_files.h"
#include "data/further_images.h"
#include "data/image_list.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

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

void read_captions(const DatasetConfig& config, const ImageList& list, const CaptionRule& rule,
                   const std::string& trigger_word, std::vector<Candidate>& candidates,
                   std::vector<std::string>& problems) {
  if (!config.captioned) {
    for (Candidate& candidate : candidates) candidate.texts.emplace_back(), candidate.captioned = true;
    return;
  }
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

}  // namespace

std::vector<Candidate> find_candidates(const DatasetConfig& config, const std::string& section, const ImageList& list,
                                       const CaptionRule& rule, const std::string& trigger_word, const ImageKeys& keys,
                                       std::vector<std::string>& problems) {
  std::vector<Candidate> candidates(list.images.size());
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].file.path = list.images[i];
  find_images(config, section + ".images", keys, candidates, problems);
  find_masks(config, list.images, candidates, problems);
  read_captions(config, list, rule, trigger_word, candidates, problems);
  return candidates;
}

}  // namespace lh
