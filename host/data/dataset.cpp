// Opening the training set: which images there are, whether they can be used, and what is said about them.
#include "data/dataset.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <exception>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/hash.h"
#include "data/caption.h"
#include "data/codecs.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

struct Picture {
  fs::path path;
  std::string caption, content_hash;
  ImageSize size;
  std::string corrupt;         // why it cannot be used
  std::string unreadable;      // why the file could not be read at all
  std::exception_ptr failure;  // anything else, such as memory
};

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array known = {".jpg", ".jpeg", ".png", ".webp"};
  return std::find(known.begin(), known.end(), extension) != known.end();
}

// "a.png, b.png, ... (7 in all)"
std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t limit = 5;
  std::string text;
  for (size_t i = 0; i < names.size() && i < limit; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > limit ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

// The folder's images, sorted by the bytes of their names.
std::vector<Picture> list_images(const fs::path& folder, std::vector<std::string>& problems) {
  std::vector<Picture> pictures;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    problems.push_back(fmt::format("dataset {}: {} (set folder_path to the folder with the images)", folder.string(),
                                   fs::exists(folder, error) ? "this is not a folder" : "there is no such folder"));
    return pictures;
  }
  int64_t others = 0;
  fs::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (is_image_name(entry->path())) {
      pictures.push_back({});
      pictures.back().path = entry->path();
    } else {
      ++others;
    }
  }
  if (error) {
    problems.push_back(fmt::format("dataset {}: the folder cannot be listed: {}", folder.string(), error.message()));
    return {};
  }
  if (pictures.empty())
    problems.push_back(fmt::format(
        "dataset {}: expected .jpg, .jpeg, .png or .webp files, found none ({} other entries; sub-folders are not "
        "searched)",
        folder.string(), others));
  std::sort(pictures.begin(), pictures.end(),
            [](const Picture& a, const Picture& b) { return a.path.native() < b.path.native(); });
  return pictures;
}

void read_captions(const DatasetConfig& config, const std::string& trigger_word, std::vector<Picture>& pictures,
                   std::vector<std::string>& problems) {
  const std::string extension = config.caption_ext.starts_with('.') ? config.caption_ext : "." + config.caption_ext;
  std::vector<std::string> missing;
  bool mark_left = false;
  for (Picture& picture : pictures) {
    fs::path file = picture.path;
    file.replace_extension(extension);
    std::string caption = config.default_caption;
    try {
      std::error_code error;
      if (fs::exists(file, error)) {
        caption = read_caption(file);
      } else if (config.default_caption.empty()) {
        missing.push_back(picture.path.filename().string());
      }
    } catch (const Error& error) {
      problems.push_back(error.what());
    } catch (const fs::filesystem_error& error) {
      problems.push_back(fmt::format("caption {}: {}", file.string(), error.code().message()));
    }
    picture.caption = with_trigger(std::move(caption), trigger_word);
    mark_left = mark_left || picture.caption.find("[trigger]") != std::string::npos;
  }
  if (!missing.empty())
    problems.push_back(fmt::format(
        "dataset {}: {} of {} images have no caption: {} (add <name>{} beside each, or set default_caption)",
        config.folder_path.string(), missing.size(), pictures.size(), some_names(missing), extension));
  if (mark_left)
    spdlog::warn("dataset {}: captions contain \"[trigger]\" but trigger_word is not set; it is used as it stands",
                 config.folder_path.string());
}

void check_image(Picture& picture, const KnownGood& known_good) {
  std::vector<std::byte> bytes;
  try {
    bytes = read_image_file(picture.path);
  } catch (const Error& error) {
    picture.unreadable = error.what();
    return;
  }
  try {
    picture.content_hash = Sha256().update(std::span<const std::byte>(bytes)).hex();
    picture.size = image_size(bytes, picture.path);
    if (!known_good || !known_good(picture.content_hash)) decode_image(bytes, picture.path);
  } catch (const Error& error) {
    picture.corrupt = error.what();
  }
}

// All images at once on the machine's cores; each result lies in its own picture.
void check_images(std::vector<Picture>& pictures, const KnownGood& known_good) {
  constexpr size_t most_threads = 16;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < pictures.size(); i = next++) {
      try {
        check_image(pictures[i], known_good);
      } catch (...) {
        pictures[i].failure = std::current_exception();
      }
    }
  };
  const size_t threads =
      std::min({most_threads, size_t{std::max(std::thread::hardware_concurrency(), 1u)}, pictures.size()});
  {
    std::vector<std::jthread> helpers;
    try {
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads than wanted: this one does the rest.
    }
    work();
  }
  for (const Picture& picture : pictures)
    if (picture.failure) std::rethrow_exception(picture.failure);
}

// Sorts out what cannot be used: into problems, or with a warning into the count of skipped images.
void drop_unusable(const DatasetConfig& config, std::vector<Picture>& pictures, int64_t& skipped,
                   std::vector<std::string>& problems) {
  const auto total = pictures.size();
  size_t unreadable = 0, corrupt = 0;
  for (const Picture& picture : pictures) {
    if (!picture.unreadable.empty()) {
      problems.push_back(picture.unreadable);
      ++unreadable;
    } else if (!picture.corrupt.empty()) {
      ++corrupt;
      if (config.strict) {
        problems.push_back(picture.corrupt + " [strict]");
      } else {
        spdlog::warn("{}; left out of the training set", picture.corrupt);
      }
    }
  }
  std::erase_if(pictures, [](const Picture& p) { return !p.unreadable.empty() || !p.corrupt.empty(); });
  if (!config.strict) skipped += static_cast<int64_t>(corrupt);
  if (total > 0 && pictures.empty())
    problems.push_back(fmt::format("dataset {}: none of the {} images can be used ({} corrupt, {} unreadable)",
                                   config.folder_path.string(), total, corrupt, unreadable));
}

void add_samples(const DatasetConfig& config, const std::vector<Picture>& pictures, int64_t step, Dataset& dataset) {
  for (const int64_t resolution : config.resolution) {
    for (const Picture& picture : pictures) {
      Sample sample;
      sample.image = picture.path;
      sample.caption = picture.caption;
      sample.content_hash = picture.content_hash;
      sample.size = picture.size;
      sample.bucket = choose_bucket(picture.size, resolution, step, config.buckets);
      sample.caption_dropout_rate = config.caption_dropout_rate;
      sample.repeats = config.num_repeats;
      dataset.samples.push_back(sample);
      if (!config.flip_x) continue;
      sample.flip = true;
      dataset.samples.push_back(sample);
    }
  }
}

}  // namespace

PictureNumbers picture_numbers(const Sample& s) {
  const CropGeometry crop = crop_geometry(s.size, {s.bucket.width, s.bucket.height});
  const int64_t left = s.flip ? crop.scaled.width - crop.left - s.bucket.width : crop.left;
  const auto number = [](int64_t pixels) { return static_cast<float>(pixels); };
  return {number(s.size.height), number(s.size.width),    number(crop.top),
          number(left),          number(s.bucket.height), number(s.bucket.width)};
}

Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, int64_t step,
                     const KnownGood& known_good) {
  Dataset dataset;
  std::vector<std::string> problems;
  for (const DatasetConfig& config : datasets) {
    std::vector<Picture> pictures = list_images(config.folder_path, problems);
    read_captions(config, trigger_word, pictures, problems);
    check_images(pictures, known_good);
    drop_unusable(config, pictures, dataset.skipped, problems);
    add_samples(config, pictures, step, dataset);
  }
  if (datasets.empty()) problems.push_back("datasets: expected at least one, found none (add one with folder_path)");
  if (!problems.empty()) {
    std::string text = fmt::format("{} problem(s) with the training data:", problems.size());
    constexpr size_t limit = 50;
    for (size_t i = 0; i < problems.size() && i < limit; ++i) text += "\n  " + problems[i];
    if (problems.size() > limit) text += fmt::format("\n  ... and {} more", problems.size() - limit);
    throw Error(Code::data, text);
  }
  return dataset;
}

}  // namespace lh
