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
#include "data/further_images.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// An image of a folder, with what belongs to it.
struct Candidate {
  ImageFile file;
  ImageFiles images;
  std::string caption;
  std::string corrupt;         // why it cannot be used
  std::string unreadable;      // why the file could not be read at all
  std::exception_ptr failure;  // anything else, such as memory
};

// The folder's images, sorted by the bytes of their names.
std::vector<Candidate> list_images(const fs::path& folder, std::vector<std::string>& problems) {
  std::vector<Candidate> candidates;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    problems.push_back(fmt::format("dataset {}: {} (set folder_path to the folder with the images)", folder.string(),
                                   fs::exists(folder, error) ? "this is not a folder" : "there is no such folder"));
    return candidates;
  }
  int64_t others = 0;
  fs::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (is_image_name(entry->path())) {
      candidates.push_back({});
      candidates.back().file.path = entry->path();
    } else {
      ++others;
    }
  }
  if (error) {
    problems.push_back(fmt::format("dataset {}: the folder cannot be listed: {}", folder.string(), error.message()));
    return {};
  }
  if (candidates.empty())
    problems.push_back(fmt::format(
        "dataset {}: expected .jpg, .jpeg, .png or .webp files, found none ({} other entries; sub-folders are not "
        "searched)",
        folder.string(), others));
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.file.path.native() < b.file.path.native(); });
  return candidates;
}

// The further images of every candidate, as the model asks for them.
void find_images(const DatasetConfig& config, const std::string& section, const std::set<std::string>& keys,
                 std::vector<Candidate>& candidates, std::vector<std::string>& problems) {
  const std::vector<std::string> wrong = problems_of_images(section, config.images, keys);
  problems.insert(problems.end(), wrong.begin(), wrong.end());
  if (!wrong.empty()) return;
  std::vector<fs::path> names;
  for (const Candidate& candidate : candidates) names.push_back(candidate.file.path);
  for (const std::string& key : keys) {
    const std::vector<fs::path> files = files_beside(config, key, names, problems);
    for (size_t i = 0; i < files.size(); ++i)
      if (!files[i].empty()) candidates[i].images[key].path = files[i];
  }
}

void read_captions(const DatasetConfig& config, const std::string& of_run, std::vector<Candidate>& candidates,
                   std::vector<std::string>& problems) {
  const std::string extension = config.caption_ext.starts_with('.') ? config.caption_ext : "." + config.caption_ext;
  const std::string& trigger_word = config.trigger_word.empty() ? of_run : config.trigger_word;
  std::vector<std::string> missing;
  bool mark_left = false;
  for (Candidate& candidate : candidates) {
    fs::path file = candidate.file.path;
    file.replace_extension(extension);
    std::string caption = config.default_caption;
    try {
      std::error_code error;
      if (fs::exists(file, error)) {
        caption = read_caption(file);
      } else if (config.default_caption.empty()) {
        missing.push_back(candidate.file.path.filename().string());
      }
    } catch (const Error& error) {
      problems.push_back(error.what());
    } catch (const fs::filesystem_error& error) {
      problems.push_back(fmt::format("caption {}: {}", file.string(), error.code().message()));
    }
    if (!config.caption_prefix.empty()) caption = config.caption_prefix + " " + caption;
    if (!config.caption_suffix.empty()) caption += " " + config.caption_suffix;
    candidate.caption = with_trigger(std::move(caption), trigger_word);
    mark_left = mark_left || candidate.caption.find("[trigger]") != std::string::npos;
  }
  if (!missing.empty() && config.missing_captions == "empty")
    spdlog::info("dataset {}: {} of {} images have no caption; theirs is {}", config.folder_path.string(),
                 missing.size(), candidates.size(), trigger_word.empty() ? "empty" : "\"" + trigger_word + "\"");
  else if (!missing.empty())
    problems.push_back(fmt::format(
        "dataset {}: {} of {} images have no caption: {} (add <name>{} beside each, or set default_caption, or "
        "missing_captions: empty)",
        config.folder_path.string(), missing.size(), candidates.size(), some_names(missing), extension));
  if (mark_left)
    spdlog::warn("dataset {}: captions contain \"[trigger]\" but trigger_word is not set; it is used as it stands",
                 config.folder_path.string());
}

// Fills in what the file says of itself, or why the candidate cannot be used.
void check_file(ImageFile& file, const KnownGood& known_good, Candidate& candidate) {
  std::vector<std::byte> bytes;
  try {
    bytes = read_image_file(file.path);
  } catch (const Error& error) {
    candidate.unreadable = error.what();
    return;
  }
  try {
    file.content_hash = sha256_hex(std::span(bytes));
    file.size = image_size(bytes, file.path);
    if (!known_good || !known_good(file.content_hash)) decode_image(bytes, file.path);
  } catch (const Error& error) {
    candidate.corrupt = error.what();
  }
}

void check_image(Candidate& candidate, const KnownGood& known_good) {
  check_file(candidate.file, known_good, candidate);
  for (auto& [key, file] : candidate.images) check_file(file, known_good, candidate);
}

// All images at once on the machine's cores; each result lies in its own candidate.
void check_images(std::vector<Candidate>& candidates, const KnownGood& known_good) {
  constexpr size_t most_threads = 16;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < candidates.size(); i = next++) {
      try {
        check_image(candidates[i], known_good);
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

// Sorts out what cannot be used: into problems, or with a warning into the count of skipped images.
void drop_unusable(const DatasetConfig& config, std::vector<Candidate>& candidates, int64_t& skipped,
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
      } else {
        spdlog::warn("{}; left out of the training set", candidate.corrupt);
      }
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.unreadable.empty() || !c.corrupt.empty(); });
  if (!config.strict) skipped += static_cast<int64_t>(corrupt);
  if (total > 0 && candidates.empty())
    problems.push_back(fmt::format("dataset {}: none of the {} images can be used ({} corrupt, {} unreadable)",
                                   config.folder_path.string(), total, corrupt, unreadable));
}

void add_samples(const DatasetConfig& config, const std::vector<Candidate>& candidates, int64_t step,
                 Dataset& dataset) {
  for (const int64_t resolution : config.resolution) {
    for (const Candidate& candidate : candidates) {
      Sample sample;
      sample.image = candidate.file;
      sample.images = candidate.images;
      sample.caption = candidate.caption;
      sample.bucket = choose_bucket(candidate.file.size, resolution, step, config.buckets);
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

ImageFile open_image(const fs::path& path) {
  const std::vector<std::byte> bytes = read_image_file(path);
  decode_image(bytes, path);
  return {path, sha256_hex(std::span(bytes)), image_size(bytes, path)};
}

Image read_cut(const ImageCut& cut) {
  const std::vector<std::byte> bytes = read_image_file(cut.file.path);
  if (sha256_hex(std::span(bytes)) != cut.file.content_hash)
    fail(Code::data, "{}: the file was changed after the run had begun. Start the run again", cut.file.path.string());
  return resize_and_crop(decode_image(bytes, cut.file.path), cut.bucket.width, cut.bucket.height);
}

ImageNumbers image_numbers(const Sample& s) {
  const CropGeometry crop = crop_geometry(s.image.size, {s.bucket.width, s.bucket.height});
  const int64_t left = s.flip ? crop.scaled.width - crop.left - s.bucket.width : crop.left;
  const auto number = [](int64_t pixels) { return static_cast<float>(pixels); };
  return {number(s.image.size.height), number(s.image.size.width), number(crop.top), number(left),
          number(s.bucket.height),     number(s.bucket.width)};
}

Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, int64_t step,
                     const KnownGood& known_good, const std::set<std::string>& keys) {
  Dataset dataset;
  std::vector<std::string> problems;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const DatasetConfig& config = datasets[i];
    std::vector<Candidate> candidates = list_images(config.folder_path, problems);
    find_images(config, fmt::format("datasets[{}].images", i), keys, candidates, problems);
    read_captions(config, trigger_word, candidates, problems);
    check_images(candidates, known_good);
    drop_unusable(config, candidates, dataset.skipped, problems);
    add_samples(config, candidates, step, dataset);
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
