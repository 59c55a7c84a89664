// Datasets of musubi-tuner: each becomes one of ours, or one for each of its target_frames.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "config/musubi.h"
#include "config/musubi_keys.h"
#include "config/scalar.h"
#include "config/script_arguments.h"

namespace lh::musubi {
namespace {

using kohya::scalar;
using kohya::set;
using kohya::Translated;
using yaml::Kind;
using yaml::Node;

constexpr kohya::Names dataset_names = {
    .ours = ours, .has_no_effect = has_no_effect, .refused = refused, .unknown = unknown_of_datasets};

constexpr int64_t places = 4;  // frames behind the first that are one place of the latents, of all their models

class Datasets {
 public:
  explicit Datasets(double model_fps) : model_fps_(model_fps) {}

  Translated read(const Node& file) {
    const Node *general = file.find("general"), *datasets = file.find("datasets");
    for (const auto& [key, value] : file.entries)
      if (key.text != "general" && key.text != "datasets") reader_.unknown(key);
    if (general != nullptr)
      for (const auto& [key, value] : general->entries)
        if (!may_be_general(key.text)) {
          if (const std::string what = unknown_of_datasets(key.text);
              ours(key.text).empty() && !has_no_effect(key.text) && refused(key.text) == nullptr &&
              !of_dataset(key.text))
            reader_.unknown(key);
          else
            reader_.problem(key, key.text, "belongs to a [[datasets]]: [general] has none of it there");
        }
    list_ = {.kind = Kind::list, .place = datasets->place};
    for (const Node& dataset : datasets->items) {
      general_ = general != nullptr && general->kind == Kind::map ? general : nullptr;
      dataset_ = &dataset;
      read_dataset();
    }
    set(to_.document, "datasets", scalar(list_, ""), std::move(list_));
    return std::move(to_);
  }

 private:
  static bool of_dataset(std::string_view name) {
    constexpr std::string_view read_here[] = {
        "target_frames",     "frame_extraction",   "frame_stride",
        "frame_sample",      "max_frames",         "source_fps",
        "control_directory", "control_resolution", "qwen_image_edit_control_resolution"};
    return std::ranges::find(read_here, name) != std::end(read_here);
  }

  // The key and its value, of the dataset or else of [general].
  using Given = std::pair<const Node*, const Node*>;
  Given find(std::string_view name) const {
    for (const Node* layer : {dataset_, general_})
      if (layer != nullptr)
        if (const Node* value = layer->find(name)) return {layer->find_key(name), value};
    return {nullptr, nullptr};
  }
  bool on(std::string_view name) const {
    const Node* value = find(name).second;
    return value != nullptr && yaml::flag_of(*value) == true;
  }
  int64_t integer(std::string_view name, int64_t otherwise) {
    const auto [key, value] = find(name);
    if (value == nullptr) return otherwise;
    if (const auto number = yaml::integer_of(*value); number && *number > 0) return *number;
    reader_.problem(*value, name, "expected an integer of at least 1, found " + yaml::describe(*value));
    return otherwise;
  }
  void wrong(std::string_view name, const std::string& text) {
    const Node* key = find(name).first;
    reader_.problem(key != nullptr ? *key : *dataset_, name, text);
  }

  void read_dataset() {
    Node ours{.kind = Kind::map, .place = dataset_->place};
    const bool video = dataset_->find("video_directory") != nullptr || dataset_->find("video_jsonl_file") != nullptr;
    const bool image = dataset_->find("image_directory") != nullptr || dataset_->find("image_jsonl_file") != nullptr;
    if (video == image)
      to_.problems.push_back({dataset_->place, fmt::format("datasets: expected one of image_directory, "
                                                           "image_jsonl_file, video_directory and video_jsonl_file, "
                                                           "found {}",
                                                           video ? "images and videos: make two of it" : "none")});
    std::set<std::string> done;
    for (const Node* layer : {dataset_, general_})
      if (layer != nullptr)
        for (const auto& [key, value] : layer->entries)
          if ((layer == dataset_ || may_be_general(key.text)) && done.insert(key.text).second)
            read_key(key, value, video, ours);
    read_size(video, ours);
    read_captions(ours);
    if (!video) {
      list_.items.push_back(std::move(ours));
      return;
    }
    read_clips(std::move(ours));
  }

  void read_key(const Node& key, const Node& value, bool video, Node& into) {
    const std::string& name = key.text;
    if (one_of(name, {"resolution", "enable_bucket", "bucket_no_upscale"})) return;
    const bool of_videos =
        one_of(name, {"target_frames", "frame_extraction", "frame_stride", "frame_sample", "max_frames", "source_fps"});
    if (of_videos) {
      if (!video) reader_.problem(key, name, "is of videos: this dataset has images");
    } else if (name == "control_directory") {
      if (video)
        reader_.problem(key, name, "not supported: videos are not trained with control videos here");
      else
        set(into, "images.control", key, value);
    } else if (name == "batch_size") {
      set(into, name, key, value);
    } else if (name == "control_resolution" || name == "qwen_image_edit_control_resolution") {
      read_control_size(key, value);
    } else if (!reader_.read(key, value, into, "datasets[].")) {
      reader_.unknown(key);
    }
  }

  static bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  }

  // One side of a square, or width and height.
  std::optional<std::pair<int64_t, int64_t>> sides(std::string_view name, const Node& value) {
    const auto side = [](const Node& node) { return yaml::integer_of(node).value_or(0); };
    std::pair<int64_t, int64_t> both{0, 0};
    if (value.kind == Kind::scalar) both = {side(value), side(value)};
    if (value.kind == Kind::list && value.items.size() == 2) both = {side(value.items[0]), side(value.items[1])};
    if (both.first > 0 && both.second > 0) return both;
    reader_.problem(value, name, "expected [width, height], found " + yaml::describe(value));
    return std::nullopt;
  }
  std::optional<std::pair<int64_t, int64_t>> resolution() {
    const Node* value = find("resolution").second;
    return value == nullptr ? std::pair<int64_t, int64_t>{960, 544} : sides("resolution", *value);
  }

  // An area, of which images have their own shape; without buckets the shape of all of them. Videos always have
  // buckets.
  void read_size(bool video, Node& into) {
    const auto both = resolution();
    if (!both) return;
    const bool buckets = video || on("enable_bucket");
    const auto [key, value] = find("resolution");
    const Node& at = key != nullptr ? *key : *dataset_;
    if (!buckets && both->first != both->second)
      wrong("resolution", fmt::format("{} x {} without enable_bucket crops all images to this shape, which is not "
                                      "supported: say enable_bucket = true, which keeps their shapes, or give two "
                                      "sides that are the same",
                                      both->first, both->second));
    const double side = std::sqrt(static_cast<double>(both->first) * static_cast<double>(both->second));
    set(into, "resolution", at, scalar(at, fmt::format("{}", std::llround(side))));
    set(into, "buckets", at, scalar(at, buckets ? "true" : "false"));
    if (buckets && (video || !on("bucket_no_upscale")))
      say_once("resolution: images and videos that are smaller keep their own size, there they are enlarged");
  }

  void read_control_size(const Node& key, const Node& value) {
    const auto control = sides(key.text, value), own = resolution();
    if (!control || !own) return;
    if (control != own)
      reader_.problem(
          key, key.text,
          "not supported: control images are scaled and cut like their images: give the same as resolution, "
          "or remove it, and prepare them so beforehand");
    else
      say_once(key.text +
               ": control images are scaled and cut like their images, which is the same where both have one shape");
  }

  void read_captions(Node& into) {
    for (const char* name : {"image_jsonl_file", "video_jsonl_file"})
      if (const auto [key, value] = find(name); value != nullptr) {
        // Paths in it are those of the working directory, as the paths of the files themselves.
        if (into.find("folder_path") == nullptr) set(into, "folder_path", *key, scalar(*value, "."));
        look_into(*key, *value, into);
      }
    for (const char* name : {"image_directory", "video_directory"})
      if (find(name).second != nullptr && find("caption_extension").second == nullptr)
        wrong(name, "caption_extension is missing, such as caption_extension = \".txt\"");
  }

  // Lines of more than an image and its caption.
  void look_into(const Node& key, const Node& value, Node& into) {
    std::ifstream in(value.text);
    size_t most = 0;
    for (std::string line; std::getline(in, line);) {
      if (line.find("\"image_path_1\"") != line.npos)
        return reader_.problem(key, key.text, "its lines have image_path_1: pictures in layers are not trained here");
      size_t controls = 0;
      for (size_t at = 0; (at = line.find("\"control_path", at)) != line.npos; ++at) ++controls;
      most = std::max(most, controls);
    }
    if (most > 0 && key.text == "video_jsonl_file")
      return reader_.problem(key, key.text,
                             "its lines have control_path: videos are not trained with control videos here");
    for (size_t i = 0; i < most; ++i)
      set(into, i == 0 ? "images.control" : fmt::format("images.control_{}", i + 1), key, value);
  }

  void read_clips(Node clip) {
    const auto [key, value] = find("frame_extraction");
    std::string how = value == nullptr ? "head" : value->text;
    if (!one_of(how, {"head", "chunk", "slide", "uniform", "full"}))
      return wrong("frame_extraction", "must be head, chunk, slide, uniform or full, found " + how);
    const Node& at = key != nullptr ? *key : *dataset_;
    const int64_t samples = integer("frame_sample", 1), stride = integer("frame_stride", 1),
                  most = integer("max_frames", 129);
    if (how == "uniform" && samples == 1) how = "head";
    set(clip, "frame_extraction", at, scalar(at, how));
    if (how == "slide") set(clip, "frame_stride", at, scalar(at, fmt::format("{}", stride)));
    if (how == "uniform") set(clip, "frame_sample", at, scalar(at, fmt::format("{}", samples)));
    read_rate(clip);
    for (const int64_t frames : how == "full" ? std::set<int64_t>{most} : target_frames()) {
      Node one = clip;
      set(one, "num_frames", at, scalar(at, fmt::format("{}", frames)));
      list_.items.push_back(std::move(one));
    }
  }

  // Ascending and without those that come twice, rounded down to what fills places of the latents.
  std::set<int64_t> target_frames() {
    const Node* value = find("target_frames").second;
    std::set<int64_t> all;
    if (value == nullptr) return {1};
    for (const Node& item : value->kind == Kind::list ? value->items : std::vector<Node>{*value}) {
      const auto frames = yaml::integer_of(item);
      if (!frames || *frames < 1) {
        reader_.problem(item, "target_frames", "expected an integer of at least 1, found " + yaml::describe(item));
        continue;
      }
      const int64_t fit = (*frames - 1) / places * places + 1;
      if (fit != *frames) say_once(fmt::format("target_frames: of {} frames the first {} are taken", *frames, fit));
      all.insert(fit);
    }
    if (all.empty() && value->kind == Kind::list && value->items.empty())
      wrong("target_frames", "expected numbers of frames, such as [1, 25, 45], found none");
    return all;
  }

  void read_rate(Node& clip) {
    const auto [key, value] = find("source_fps");
    if (value == nullptr) return;
    const auto fps = yaml::number_of(*value);
    if (!fps || *fps < model_fps_)
      return wrong("source_fps", fmt::format("expected a number of at least {}, the model's frames a second, found {}",
                                             model_fps_, yaml::describe(*value)));
    set(clip, "source_fps", *key, *value);
    set(clip, "fps", *key, scalar(*value, fmt::format("{}", model_fps_)));
  }

  void say_once(const std::string& text) {
    if (std::ranges::find(to_.notes, text) == to_.notes.end()) to_.notes.push_back(text);
  }

  double model_fps_;  // of which videos are trained
  Translated to_;
  kohya::ScriptReader reader_{dataset_names, to_};
  const Node *general_ = nullptr, *dataset_ = nullptr;
  Node list_;
};

}  // namespace

Translated datasets(const Node& file, double fps) { return Datasets(fps).read(file); }

}  // namespace lh::musubi
