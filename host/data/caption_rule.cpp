#include "data/caption_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "data/caption.h"

namespace lh {
namespace {

using Tags = std::vector<std::string>;

std::string trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const size_t first = text.find_first_not_of(blank);
  return first == text.npos ? "" : std::string(text.substr(first, text.find_last_not_of(blank) - first + 1));
}

Tags split(std::string_view text, const std::string& separator) {
  Tags tags;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (std::string tag = trimmed(text.substr(at, end - at)); !tag.empty()) tags.push_back(std::move(tag));
    at = end + separator.size();
  }
  return tags;
}

void shuffle(Tags& tags, Random& random) {
  std::vector<int64_t> order(tags.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  random.shuffle(order);
  Tags shuffled;
  for (const int64_t i : order) shuffled.push_back(std::move(tags[static_cast<size_t>(i)]));
  tags = std::move(shuffled);
}

void append(Tags& tags, const Tags& more) { tags.insert(tags.end(), more.begin(), more.end()); }

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  if (what.empty()) return text;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

bool has_wildcard(std::string_view text) { return text.find_first_of("{}") != text.npos; }

// "a {red|blue} bird": one of the two. {{ and }} are braces; a brace without its other half is left as it stands.
std::string choose_wildcards(std::string_view text, Random& random) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      out += rest[0];
      at += 2;
      continue;
    }
    std::vector<std::string> options(1);
    size_t end = at + 1;
    bool closed = false;
    for (; rest[0] == '{' && end < text.size() && !closed; ++end) {
      const std::string_view here = text.substr(end);
      if (here.starts_with("{{") || here.starts_with("}}"))
        options.back() += text[end++];
      else if (here[0] == '|')
        options.emplace_back();
      else if (here[0] == '}')
        closed = true;
      else
        options.back() += here[0];
    }
    if (!closed || end == at + 2) {
      out += rest[0];
      ++at;
      continue;
    }
    out += options[random.below(options.size())];
    at = end;
  }
  return out;
}

// The words, or the lines of the file that is named in their place.
Tags words_of(const std::vector<std::string>& given) {
  std::error_code none;
  if (given.size() != 1 || !std::filesystem::is_regular_file(given[0], none)) return given;
  return split(read_caption(given[0]), "\n");
}

}  // namespace

CaptionRule::CaptionRule(const DatasetConfig& d, std::string trigger_word)
    : trigger_(std::move(trigger_word)),
      prefix_(d.caption_prefix),
      suffix_(d.caption_suffix),
      shuffle_(d.shuffle_tokens),
      separator_(d.caption_separator),
      keep_separator_(d.keep_tokens_separator),
      secondary_(d.secondary_separator),
      in_front_(!d.is_reg),
      wildcards_(d.enable_wildcard),
      random_triggers_(words_of(d.random_triggers)),
      random_triggers_max_(d.random_triggers_max),
      keep_(d.keep_tokens),
      warmup_min_(d.token_warmup_min),
      every_n_epochs_(d.caption_dropout_every_n_epochs),
      variants_(d.caption_variants),
      dropout_rate_(d.caption_dropout_rate),
      tag_dropout_(d.token_dropout_rate),
      warmup_step_(d.token_warmup_step) {
  for (const std::string& replacement : d.replacements) {
    const size_t bar = replacement.find('|');
    if (bar == 0 || bar == replacement.npos || replacement.find('|', bar + 1) != replacement.npos)
      fail(Code::config, "datasets[].replacements: expected \"what stands there|what shall\", found \"{}\"",
           replacement);
    replacements_.emplace_back(replacement.substr(0, bar), replacement.substr(bar + 1));
  }
  if (!random_triggers_.empty() && random_triggers_max_ > std::ssize(random_triggers_))
    fail(Code::config, "datasets[].random_triggers_max: {} cannot be drawn of {} words in random_triggers",
         random_triggers_max_, random_triggers_.size());
}

bool CaptionRule::varies(const std::vector<std::string>& texts) const {
  return texts.size() > 1 || changes_tags() || !random_triggers_.empty() ||
         (wildcards_ && std::ranges::any_of(texts, has_wildcard));
}

// Epochs count from 1 there: of every 3 the third is without captions.
bool CaptionRule::dropped(const CaptionUse& use) const {
  if (every_n_epochs_ > 0 && (use.epoch + 1) % every_n_epochs_ == 0) return true;
  return dropout_rate_ > 0 &&
         Random(use.seed, Purpose::caption_dropout, static_cast<uint64_t>(use.micro_step), use.lane).uniform() <
             dropout_rate_;
}

std::string CaptionRule::dressed(std::string text) const {
  for (const auto& [from, to] : replacements_) text = replaced(std::move(text), from, to);
  return (prefix_.empty() ? "" : prefix_ + " ") + text + (suffix_.empty() ? "" : " " + suffix_);
}

std::string CaptionRule::finished(std::string caption) const {
  caption = replaced(std::move(caption), secondary_, separator_);
  return in_front_ ? with_trigger(std::move(caption), trigger_) : replace_trigger(std::move(caption), trigger_);
}

std::string CaptionRule::plain(const std::string& text) const { return finished(dressed(text)); }

std::string CaptionRule::with_word(const std::string& caption, const std::string& word) const {
  return replaced(caption, trigger_, word);
}

std::string CaptionRule::tags(const std::string& caption, const CaptionUse& use, Random& random) const {
  Tags front, moving, back;
  const size_t mark = keep_separator_.empty() ? caption.npos : caption.find(keep_separator_);
  if (mark != caption.npos) {
    const size_t behind = mark + keep_separator_.size(), second = caption.find(keep_separator_, behind);
    front = split(std::string_view(caption).substr(0, mark), separator_);
    moving =
        split(std::string_view(caption).substr(behind, second == caption.npos ? second : second - behind), separator_);
    if (second != caption.npos)
      back = split(std::string_view(caption).substr(second + keep_separator_.size()), separator_);
  } else {
    moving = split(caption, separator_);
    const auto kept = std::min(static_cast<std::ptrdiff_t>(moving.size()), static_cast<std::ptrdiff_t>(keep_));
    front.assign(moving.begin(), moving.begin() + kept);
    moving.erase(moving.begin(), moving.begin() + kept);
  }
  const double ends = std::floor(warmup_step_ < 1 ? warmup_step_ * static_cast<double>(use.steps) : warmup_step_);
  if (static_cast<double>(use.step) < ends) {
    const double more = static_cast<double>(moving.size()) - static_cast<double>(warmup_min_);
    const double count = std::floor(static_cast<double>(use.step) * (more / ends)) + static_cast<double>(warmup_min_);
    if (count < static_cast<double>(moving.size())) moving.resize(static_cast<size_t>(std::max(count, 0.0)));
  }
  if (shuffle_ == "true") shuffle(moving, random);
  if (tag_dropout_ > 0) std::erase_if(moving, [&](const std::string&) { return random.uniform() < tag_dropout_; });
  append(front, moving);
  append(front, back);
  return fmt::format("{}", fmt::join(front, ", "));
}

void CaptionRule::add_random_triggers(std::string& caption, Random& random) const {
  if (random_triggers_.empty()) return;
  const auto most = static_cast<uint64_t>(random_triggers_max_);
  const uint64_t count = most > 1 ? random.below(most + 1) : most;
  Tags words = random_triggers_;
  shuffle(words, random);
  for (uint64_t i = 0; i < count; ++i) caption += ", " + words[i];
}

std::string CaptionRule::caption(const std::vector<std::string>& texts, uint64_t image, const CaptionUse& use) const {
  if (dropped(use)) return dropped_caption;
  Random random(use.seed, Purpose::caption, static_cast<uint64_t>(use.micro_step), use.lane);
  if (variants_ > 0) {
    const auto variant = static_cast<uint32_t>(random.below(static_cast<uint64_t>(variants_)));
    random = Random(use.seed, Purpose::caption_variant, image, variant);
  }
  std::string text = dressed(texts.size() == 1 ? texts[0] : texts[random.below(texts.size())]);
  if (wildcards_) text = choose_wildcards(text, random);
  if (changes_tags()) text = tags(text, use, random);
  text = finished(std::move(text));
  add_random_triggers(text, random);
  if (shuffle_ != "all") return text;
  Tags all = split(text, separator_);
  shuffle(all, random);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string CaptionRule::text() const {
  std::string line =
      fmt::format("{:?};{:?};{:?};{};{:?};{:?};{:?};{};{};{};{};{};{};{};{};{}", trigger_, prefix_, suffix_, shuffle_,
                  separator_, keep_separator_, secondary_, in_front_, wildcards_, keep_, warmup_min_, every_n_epochs_,
                  variants_, dropout_rate_, tag_dropout_, warmup_step_);
  if (!replacements_.empty()) line += fmt::format(";replaced {}", replacements_);
  if (!random_triggers_.empty()) line += fmt::format(";{} of {}", random_triggers_max_, random_triggers_);
  return line;
}

}  // namespace lh
