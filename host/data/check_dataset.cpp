// open_dataset looks at the data as a run does; here its samples and what it saw on the way become findings by picture.
#include "data/check_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <sstream>

#include "data/batches.h"
#include "data/tokenizer.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr int64_t odd_ratio = 2;       // of the longer side to the shorter one
constexpr double much_cut_off = 0.1;   // share of a picture
constexpr int64_t words_of_clip = 50;  // about what 77 tokens hold

int64_t words_in(const std::string& text) {
  std::istringstream words(text);
  int64_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

bool is_blank(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isspace(c) != 0; });
}

// Each element's group is known by one of it.
class Groups {
 public:
  explicit Groups(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  void join(size_t a, size_t b) { parent_[root(a)] = root(b); }
  // Those of several elements, in order.
  std::vector<std::vector<size_t>> several() {
    std::map<size_t, std::vector<size_t>> by_root;
    for (size_t i = 0; i < parent_.size(); ++i) by_root[root(i)].push_back(i);
    std::vector<std::vector<size_t>> groups;
    for (auto& [key, group] : by_root)
      if (group.size() > 1) groups.push_back(std::move(group));
    std::ranges::sort(groups);
    return groups;
  }

 private:
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  std::vector<size_t> parent_;
};

class Checker {
 public:
  explicit Checker(const CheckRequest& request) : request_(request) {}

  DatasetCheck check() {
    survey_.open = [this](const std::vector<fs::path>& files) { return examine(files); };
    const Dataset dataset = open_dataset(request_.datasets, request_.defaults, request_.step, {}, request_.image_keys,
                                         request_.split, &survey_);
    check_.datasets = survey_.datasets;
    check_.problems = survey_.problems;
    check_.not_read = dataset.not_read;
    unused_reg_ = dataset.unused_reg;
    for (const auto& [kind, count] : samples_by_kind(dataset.samples)) check_.buckets[kind.bucket] += count;
    check_.validation = static_cast<int64_t>(dataset.validation.size());
    if (!dataset.samples.empty()) check_.batches = BatchOrder(dataset, 0).batches_per_epoch();
    for (const DatasetSurvey::Picture& seen : survey_.pictures) look_at(seen);
    for (const Sample& sample : dataset.samples) use(sample);
    for (const Sample& sample : dataset.validation) {
      use(sample);
      check_.pictures[places_.at(sample.image.path)].validation = true;
    }
    for (CheckedPicture& picture : check_.pictures) measure(picture);
    compare();
    remark();
    return std::move(check_);
  }

 private:
  OpenedImages examine(const std::vector<fs::path>& files) {
    std::vector<fs::path> unknown;
    for (const fs::path& file : files)
      if (!examined_.contains(file)) unknown.push_back(file);
    for (ExaminedImage& image : examine_images(unknown, request_.examination))
      examined_.emplace(image.opened.file.path, std::move(image));
    OpenedImages opened;
    for (const fs::path& file : files) opened[file] = examined_.at(file).opened;
    return opened;
  }

  void add(CheckedPicture& picture, Finding finding, std::string text, bool stops = false) {
    const auto same = [&](const CheckedPicture::Note& note) { return note.finding == finding && note.text == text; };
    if (std::ranges::none_of(picture.notes, same)) picture.notes.push_back({finding, std::move(text), stops});
  }

  // One picture may be in several datasets, at other resolutions for instance.
  void look_at(const DatasetSurvey::Picture& seen) {
    const auto [place, added] = places_.try_emplace(seen.file.path, check_.pictures.size());
    if (added) {
      check_.pictures.push_back({.dataset = seen.dataset, .path = seen.file.path, .size = seen.file.size});
      check_.pictures.back().thumbnail = examined_.at(seen.file.path).thumbnail;
    }
    CheckedPicture& picture = check_.pictures[place->second];
    const DatasetConfig& config = survey_.datasets.at(seen.dataset);
    for (const int64_t resolution : config.resolution)
      if (seen.file.size.width * seen.file.size.height < resolution * resolution)
        too_large_[seen.file.path].insert(resolution);
    if (!seen.why_not.empty()) add(picture, Finding::unusable, seen.why_not, seen.stops);
    if (!seen.no_text.empty()) {
      add(picture, Finding::no_caption, seen.no_text, true);
    } else if (!seen.captioned && config.default_caption.empty()) {
      const bool stops = config.missing_captions == "error";
      add(picture, Finding::no_caption, stops ? "has no caption" : "has no caption, and is trained without", stops);
    } else if (!seen.captioned) {
      add(picture, Finding::no_caption, fmt::format("has no caption: datasets[].default_caption is used"));
    } else if (std::ranges::all_of(seen.texts, is_blank)) {
      add(picture, Finding::empty_caption, "its caption is empty");
    }
  }

  void use(const Sample& sample) {
    CheckedPicture& picture = check_.pictures[places_.at(sample.image.path)];
    picture.caption = sample.caption;
    picture.buckets.insert(sample.bucket);
    for (const std::string& text : sample.texts) texts_[sample.image.path].insert(sample.rule.plain(text));
    const CropGeometry crop = crop_geometry(sample.image.size, {sample.bucket.width, sample.bucket.height});
    const double kept = static_cast<double>(sample.bucket.width * sample.bucket.height) /
                        static_cast<double>(crop.scaled.width * crop.scaled.height);
    if (1 - kept > much_cut_off)
      add(picture, Finding::cropped,
          fmt::format("{:.0f}% of it is cut off for {} x {}", 100 * (1 - kept), sample.bucket.width,
                      sample.bucket.height));
  }

  void measure(CheckedPicture& picture) {
    const auto [width, height] = picture.size;
    if (std::max(width, height) > odd_ratio * std::min(width, height))
      add(picture, Finding::odd_shape, fmt::format("{} x {} pixels", width, height));
    const std::set<int64_t>& larger = too_large_[picture.path];
    if (!larger.empty() && !picture.buckets.empty())
      add(picture, Finding::small,
          fmt::format("{} x {} pixels, less than resolution {} asks for", width, height, fmt::join(larger, ", ")));
    for (const std::string& text : texts_[picture.path]) {
      picture.words = std::max(picture.words, words_in(text));
      read(text, picture);
    }
  }

  // What the encoder that takes the most cannot hold is lost; others are made for less.
  void read(const std::string& text, CheckedPicture& picture) {
    int64_t longest = 0;
    for (const TextReader& reader : request_.readers) longest = std::max(longest, reader.length);
    for (const TextReader& reader : request_.readers) {
      const auto count = static_cast<int64_t>(reader.tokenizer->encode(text).size());
      int64_t& most = picture.tokens[reader.encoder];
      most = std::max(most, count);
      const int64_t cut = tokenize(*reader.tokenizer, text, reader.length).cut;
      if (cut > 0 && reader.length == longest)
        add(picture, Finding::long_caption,
            fmt::format("the last {} of {} tokens are cut off ({} takes {})", cut, count, reader.encoder,
                        reader.length));
    }
  }

  void compare() {
    std::map<std::string, std::vector<size_t>> by_content;
    for (size_t i = 0; i < check_.pictures.size(); ++i) {
      const ExaminedImage& image = examined_.at(check_.pictures[i].path);
      if (!image.opened.file.content_hash.empty()) by_content[image.opened.file.content_hash].push_back(i);
    }
    std::vector<size_t> different;
    for (auto& [hash, group] : by_content) {
      different.push_back(group.front());
      if (group.size() > 1) check_.same.push_back(group);
    }
    std::ranges::sort(check_.same);
    std::ranges::sort(different);
    Groups groups(check_.pictures.size());
    for (size_t i = 0; i < different.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (look_alike(likeness(different[i]), likeness(different[j]))) groups.join(different[i], different[j]);
    check_.alike = groups.several();
    tell(check_.same, Finding::same, "has the bytes of");
    tell(check_.alike, Finding::alike, "looks like");
  }

  const Likeness& likeness(size_t picture) const { return examined_.at(check_.pictures[picture].path).likeness; }

  void tell(const std::vector<std::vector<size_t>>& groups, Finding finding, const char* words) {
    constexpr size_t most = 3;
    for (const std::vector<size_t>& group : groups)
      for (const size_t picture : group) {
        std::vector<std::string> others;
        for (const size_t other : group)
          if (other != picture) others.push_back(check_.name(other));
        const size_t more = others.size() > most ? others.size() - most : 0;
        others.resize(others.size() - more);
        add(check_.pictures[picture], finding,
            fmt::format("{} {}{}", words, fmt::join(others, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
      }
  }

  void remark() {
    if (unused_reg_ > 0)
      check_.remarks.push_back(
          fmt::format("{} samples of regularization images are not used: there are more than of others", unused_reg_));
    if (!request_.readers.empty()) return;
    const auto wordy = std::ranges::count_if(check_.pictures, [](const auto& p) { return p.words > words_of_clip; });
    if (wordy > 0)
      check_.remarks.push_back(
          fmt::format("{} captions have more than {} words, which is about what CLIP's 77 tokens hold; what a model "
                      "takes is counted with --model",
                      wordy, words_of_clip));
  }

  const CheckRequest& request_;
  DatasetSurvey survey_;
  DatasetCheck check_;
  int64_t unused_reg_ = 0;
  std::map<fs::path, ExaminedImage> examined_;
  std::map<fs::path, size_t> places_;                // in check_.pictures
  std::map<fs::path, std::set<int64_t>> too_large_;  // resolutions for it
  std::map<fs::path, std::set<std::string>> texts_;  // as they are used
};

}  // namespace

std::string_view name_of(Finding finding) {
  switch (finding) {
    case Finding::unusable: return "unusable";
    case Finding::no_caption: return "no caption";
    case Finding::empty_caption: return "empty caption";
    case Finding::long_caption: return "long caption";
    case Finding::same: return "same";
    case Finding::alike: return "alike";
    case Finding::small: return "small";
    case Finding::odd_shape: return "odd shape";
    case Finding::cropped: return "cropped";
  }
  return "";
}

std::string_view meaning_of(Finding finding) {
  switch (finding) {
    case Finding::unusable: return "Files that cannot be used: they are left out.";
    case Finding::no_caption: return "Pictures without a caption of their own.";
    case Finding::empty_caption: return "Captions without a word in them.";
    case Finding::long_caption: return "Captions whose end the model does not get to read.";
    case Finding::same: return "Files with the same bytes: what is in them counts as often as they are there.";
    case Finding::alike: return "Pictures that look the same, scaled or encoded anew.";
    case Finding::small:
      return "Pictures with fewer pixels than the resolution asks for: they are trained at their own size.";
    case Finding::odd_shape: return "Pictures with one side more than twice as long as the other.";
    case Finding::cropped: return "Pictures of which more than a tenth is cut off to fit their bucket.";
  }
  return "";
}

bool CheckedPicture::has(Finding finding) const {
  return std::ranges::any_of(notes, [&](const Note& note) { return note.finding == finding; });
}

std::string DatasetCheck::name(size_t picture) const {
  const CheckedPicture& p = pictures.at(picture);
  const fs::path& folder = datasets.at(p.dataset).folder_path;
  const fs::path inside = p.path.lexically_relative(folder);
  return (datasets.size() > 1 ? (folder / "").parent_path().filename() / inside : inside).string();
}

int64_t DatasetCheck::trained_on() const {
  return std::ranges::count_if(pictures, [](const CheckedPicture& p) { return !p.buckets.empty() && !p.validation; });
}

int64_t DatasetCheck::count(Finding finding) const {
  return std::ranges::count_if(pictures, [&](const CheckedPicture& p) { return p.has(finding); });
}

DatasetCheck check_dataset(const CheckRequest& request) { return Checker(request).check(); }

}  // namespace lh
