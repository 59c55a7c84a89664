#include "train/picture_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/hash.h"
#include "data/further_images.h"

namespace lh {
namespace {

constexpr size_t content_digits = 16, digest_digits = 8;

struct Picture {
  std::string name, captions, settings;
};
using Pictures = std::map<std::string, Picture>;  // by content

std::string settings_of(const Sample& s, bool batches_differ) {
  std::string text = fmt::format("{}x{};{};{};{};{};{};{};{}\n", s.bucket.width, s.bucket.height, s.flip.x, s.repeats,
                                 s.is_reg, s.loss_weight, s.random_crop, s.color_aug, s.augment_variants);
  if (s.flip.y) text += "flip_y;";
  if (batches_differ) text += fmt::format("batch {};", s.batch_size);
  if (s.bucket.frames > 1 || s.clip.follows()) text += clip_text(s.bucket, s.clip) + ";";
  if (s.inpaint_masks > 0) text += fmt::format("inpaint_masks {};", s.inpaint_masks);
  for (const auto& [key, file] : s.images) text += fmt::format("{}={};", key, file.content_hash);
  if (s.mask)
    text += fmt::format("{};{};{};{}", s.mask->file.content_hash, s.mask->alpha, s.mask->invert, s.mask->least);
  return text;
}

Pictures read(const std::string& text) {
  Pictures pictures;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return pictures;
  for (const auto& [content, entry] : json.items())
    if (entry.is_array() && entry.size() == 3 && entry[0].is_string() && entry[1].is_string() && entry[2].is_string())
      pictures[content] = {entry[0], entry[1], entry[2]};
  return pictures;
}

// Names that are on both lists of files that came and went: they were edited.
std::vector<std::string> take_edited(std::vector<std::string>& removed, std::vector<std::string>& added) {
  std::vector<std::string> edited;
  std::ranges::set_intersection(removed, added, std::back_inserter(edited));
  for (std::vector<std::string>* names : {&removed, &added}) {
    std::vector<std::string> rest;
    std::ranges::set_difference(*names, edited, std::back_inserter(rest));
    *names = std::move(rest);
  }
  return edited;
}

}  // namespace

std::string picture_list(const Dataset& dataset) {
  struct Digests {
    std::string name;
    Sha256 captions, settings;
  };
  const bool batches_differ = dataset.batch_sizes().size() > 1;
  std::map<std::string, Digests> digests;
  for (const Sample& sample : dataset.samples) {
    Digests& of = digests[sample.image.content_hash.substr(0, content_digits)];
    if (of.name.empty()) of.name = sample.image.path.filename().string();
    for (const std::string& text : sample.texts) of.captions.update(text + "\n");
    of.captions.update(sample.rule.text());
    of.settings.update(settings_of(sample, batches_differ));
  }
  nlohmann::json json = nlohmann::json::object();
  for (auto& [content, of] : digests)
    json[content] = {of.name, of.captions.hex().substr(0, digest_digits), of.settings.hex().substr(0, digest_digits)};
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string changes_of_pictures(const std::string& then, const std::string& now) {
  if (then == now) return "";
  const Pictures before = read(then), after = read(now);
  if (before.empty() || after.empty())
    return "images, captions or their settings are others (the saved run does not say which it had)";
  std::vector<std::string> removed, added, captions, settings, both;
  for (const auto& [content, picture] : before) {
    const auto found = after.find(content);
    if (found == after.end()) {
      removed.push_back(picture.name);
      continue;
    }
    const bool said = found->second.captions == picture.captions, set = found->second.settings == picture.settings;
    if (!said || !set) (said ? settings : set ? captions : both).push_back(found->second.name);
  }
  for (const auto& [content, picture] : after)
    if (!before.contains(content)) added.push_back(picture.name);
  for (std::vector<std::string>* names : {&removed, &added, &captions, &settings, &both}) std::ranges::sort(*names);
  std::string text;
  const auto say = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty())
      text += fmt::format("{}{} image{} {}: {}", text.empty() ? "" : "; ", names.size(), names.size() == 1 ? "" : "s",
                          what, some_names(names));
  };
  say(take_edited(removed, added), "edited");
  say(removed, "removed");
  say(added, "added");
  say(captions, "with another caption, or other rules of captions");
  say(settings, "with other settings (size, batch size, repeats, masks, further images)");
  // The digests of files with the same content are one, so that a copy that came or went is seen in both.
  say(both, "with other captions and settings, or with more or fewer copies of it");
  return text.empty() ? "other names of the same images" : text;
}

}  // namespace lh
