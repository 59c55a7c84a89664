#include "cli/starting_point.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/caption_files.h"
#include "data/clips.h"
#include "data/further_images.h"
#include "data/image.h"
#include "data/image_formats.h"
#include "data/image_list.h"
#include "data/video.h"

namespace lh {
namespace {

// A usual beginning for each purpose: where a run should end is seen in its samples.
struct Row {
  const char* word;
  int64_t rank, steps_each, least_steps, most_steps;
  double caption_dropout;
  const char* trigger;
  const char* prompts[2];
  const char* why_rank;
};
constexpr Row rows[] = {{"subject",
                         16,
                         100,
                         600,
                         3000,
                         0.05,
                         "sks",
                         {"a photo of [trigger]", "a photo of [trigger] on a beach at sunset"},
                         "one subject needs little"},
                        {"style",
                         32,
                         60,
                         1200,
                         4000,
                         0.1,
                         "sks style",
                         {"a lighthouse by the sea, [trigger]", "portrait of an old man, [trigger]"},
                         "a style is in every part of an image"},
                        {"concept",
                         16,
                         80,
                         1000,
                         4000,
                         0.05,
                         "sks",
                         {"a photo of [trigger]", "a person beside [trigger]"},
                         "raise it where details do not come"}};
constexpr int64_t usual_sides[] = {512, 768, 1024};

const Row& row_of(LoraPurpose purpose) { return rows[static_cast<size_t>(purpose)]; }

constexpr int64_t usual_frames = 33;

bool has_videos_alone(const std::filesystem::path& folder) {
  bool videos = false;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_image_name(entry->path())) return false;
    videos |= is_video_name(entry->path());
  }
  return videos;
}

int64_t captions_of(const std::vector<std::filesystem::path>& images, const DatasetConfig& dataset) {
  std::error_code error;
  return std::ranges::count_if(
      images, [&](const auto& image) { return std::filesystem::exists(caption_file(image, dataset), error); });
}

int64_t rounded(int64_t value, int64_t to) { return std::max(to, (value + to / 2) / to * to); }

}  // namespace

std::optional<LoraPurpose> purpose_of(const std::string& word) {
  for (size_t i = 0; i < std::size(rows); ++i)
    if (word == rows[i].word) return static_cast<LoraPurpose>(i);
  return std::nullopt;
}

DataLook look_at_data(DatasetConfig dataset) {
  if (!has_videos(dataset) && has_videos_alone(dataset.folder_path)) dataset.num_frames = usual_frames;
  const bool videos = has_videos(dataset);
  std::vector<std::string> problems;
  const ImageList list = list_images(dataset, problems);
  if (!problems.empty()) fail(Code::data, "{}", problems.front());
  DataLook look;
  std::vector<int64_t> pixels;
  std::vector<std::filesystem::path> readable;
  for (const std::filesystem::path& path : list.images) {
    try {
      const VideoInfo info = videos ? video_info(path) : VideoInfo{.size = image_size(path)};
      pixels.push_back(info.size.width * info.size.height);
      look.frames = look.frames == 0 ? info.frames : std::min(look.frames, info.frames);
    } catch (const Error&) {
      continue;  // `check` and the run say what is wrong with it
    }
    readable.push_back(path);
  }
  look.images = static_cast<int64_t>(readable.size());
  look.captioned = captions_of(readable, dataset);
  for (const char* extension : caption_extensions) {
    if (look.captioned > 0) break;
    dataset.caption_ext = extension;
    look.captioned = captions_of(readable, dataset);
    if (look.captioned > 0) look.caption_ext = extension;
  }
  if (pixels.empty())
    fail(Code::data, "dataset {0}: no {1} can be read: lora-host check {0}{2} says why", dataset.folder_path.string(),
         videos ? "video" : "image", videos ? fmt::format(" --num-frames {}", dataset.num_frames) : "");
  std::ranges::sort(pixels);
  const auto median = static_cast<double>(pixels[pixels.size() / 2]);
  look.side = static_cast<int64_t>(std::sqrt(median));
  return look;
}

std::vector<int64_t> resolutions_for(const DataLook& look) {
  std::vector<int64_t> sides;
  for (const int64_t side : usual_sides)
    if (side <= look.side) sides.push_back(side);
  // Of small images all that there is, in steps that every model can take.
  constexpr int64_t step = 64;
  if (sides.empty()) sides.push_back(std::max(step, look.side / step * step));
  return sides;
}

void begin_with(LoraPurpose purpose, const DataLook& look, Config& config, KeyComments& comments) {
  const Row& row = row_of(purpose);
  DatasetConfig& dataset = config.datasets.at(0);
  config.network.linear = row.rank;
  config.network.linear_alpha = static_cast<double>(row.rank);
  comments["network.linear"] = fmt::format("rank: {}", row.why_rank);
  comments["network.linear_alpha"] = "adapters are scaled by alpha / rank";
  if (config.trigger_word.empty()) config.trigger_word = row.trigger;
  comments["trigger_word"] = "replaces [trigger] in captions and prompts, and stands in front of captions without it";
  dataset.caption_dropout_rate = row.caption_dropout;
  comments["datasets[].caption_dropout_rate"] = "so often one is trained without its caption";
  if (!look.caption_ext.empty()) {
    dataset.caption_ext = look.caption_ext;
    comments["datasets[].caption_ext"] = "what is beside the images";
  }
  dataset.missing_captions = look.captioned < look.images ? "empty" : "error";
  if (look.captioned < look.images)
    comments["datasets[].missing_captions"] = fmt::format("{} of {} {}s have no caption: theirs is the trigger word",
                                                          look.images - look.captioned, look.images, look.noun());
  comments["datasets[].folder_path"] = fmt::format("{} {}s; lora-host check looks at them", look.images, look.noun());
  if (look.frames > 0) {
    constexpr int64_t place = 4;  // frames that most models have as one
    if (dataset.num_frames == 1) dataset.num_frames = frames_that_fit(std::min(usual_frames, look.frames), place);
    comments["datasets[].num_frames"] = fmt::format("spread over each video; the shortest one has {}", look.frames);
    config.sample.num_frames = dataset.num_frames;
    comments["sample.num_frames"] = "1 for still images";
  }
  const int64_t wanted = std::clamp(row.steps_each * look.images, row.least_steps, row.most_steps);
  config.train.steps = rounded(wanted, 100);
  comments["train.steps"] =
      fmt::format("about {} for each image, {} to {}", row.steps_each, row.least_steps, row.most_steps);
  comments["train.lr"] = "lower it where samples break, raise it where they do not change";
  comments["train.batch_size"] = "images of a step";
  const int64_t part = rounded(config.train.steps / 6, 50);
  config.save.save_every = config.sample.sample_every = part;
  comments["save.save_every"] = "the best LoRA may be one of those on the way";
  comments["save.max_step_saves_to_keep"] = "older ones are removed";
  config.save.max_step_saves_to_keep = 6;
  for (const char* prompt : row.prompts) config.sample.prompts.emplace_back(prompt);
  comments["sample.sample_every"] = "steps from sample to sample";
  config.sample.sample_at_start = true;
  comments["sample.sample_at_start"] = "what the model makes of the prompts before";
}

void sample_from_first(const Recipe& recipe, Config& config, KeyComments& comments) {
  const DatasetConfig& dataset = config.datasets.at(0);
  std::vector<std::string> problems;
  const ImageList list = list_images(dataset, problems);
  for (const auto& [key, folder] : dataset.images) {
    const std::vector<std::filesystem::path> files = files_beside(dataset, key, list.images, problems);
    if (!problems.empty()) fail(Code::data, "{}", problems.front());
    config.sample.images[key] = {{.text = files.front().string()}};
  }
  if (const ImageKeys keys = recipe.image_keys_of_samples(); recipe.shown_first_frames() && !keys.needed.empty()) {
    config.sample.prompts.clear();
    comments["sample.prompts"] =
        fmt::format("a sample begins with a picture: with images: {{{}: start.png}}", *keys.needed.begin());
  }
  if (!recipe.inpaints()) return;
  if (dataset.images.contains(inpaint_mask_key)) {
    config.sample.images[inpaint_image_key] = {{.text = list.images.front().string()}};
    return;
  }
  config.sample.prompts.clear();
  comments["sample.prompts"] = "a sample is a part of an image: with images: {image: photo.png, mask: white_there.png}";
  comments["datasets[].inpaint_masks"] = "drawn for each image; with images: {mask: folder} it has one of yours";
}

}  // namespace lh
