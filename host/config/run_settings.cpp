// Lays settings over one another: configuration, phase, what was set by hand.
#include "config/run_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "config/nearest.h"
#include "config/schedule_params.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"

namespace lh {
namespace {

using yaml::Kind;
using yaml::Node;

constexpr auto changeable = std::to_array<std::string_view>({"lr", "text_encoder_lr", "loraplus_lr_ratio",
                                                             "module_lr_ratio", "role_weight_decay", "lr_scheduler",
                                                             "lr_scheduler_params", "optimizer", "optimizer_params"});

const schema::Key& row(std::string_view leaf) { return *schema::find(fmt::format("train.{}", leaf)); }

std::string printed(const TrainSection& train, std::string_view leaf) {
  Config config{.train = train};
  DatasetConfig unused;
  return schema::print_value(row(leaf).field(config, unused));
}

// The key of `changeable` that a word means; empty: none.
std::string_view meant(const std::string& word) {
  const schema::Key* key = schema::find("train." + word);
  if (key == nullptr) return "";
  const auto found = std::ranges::find(changeable, key->path.substr(std::string_view("train.").size()));
  return found == changeable.end() ? "" : *found;
}

[[noreturn]] void report(const std::string& source, const std::vector<yaml::Problem>& problems) {
  std::vector<std::string> lines;
  for (const yaml::Problem& problem : problems) lines.push_back(source + problem.text);
  throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
}

Node parsed(const std::string& text, const std::string& source) {
  std::vector<yaml::Problem> problems;
  Node node = yaml::parse(text, problems);
  if (problems.empty() && node.kind != Kind::map && node.kind != Kind::null)
    problems.push_back({node.place, "expected a mapping, found " + yaml::describe(node)});
  if (!problems.empty()) report(source, problems);
  node.kind = Kind::map;
  return node;
}

// Adds the entries of `more` to a mapping; those of mappings inside are added to them.
void merge(Node& into, const Node& more) {
  for (const auto& [name, value] : more.entries) {
    const auto there = std::ranges::find(
        into.entries, name.text, [](const auto& entry) -> const auto& { return entry.first.text; });
    if (there == into.entries.end())
      into.entries.emplace_back(name, value);
    else if (there->second.kind == Kind::map && value.kind == Kind::map)
      merge(there->second, value);
    else
      there->second = value;
  }
}

void erase(Node& mapping, std::string_view key) {
  std::erase_if(mapping.entries, [&](const auto& entry) { return meant(entry.first.text) == key; });
}

bool names(const Node& mapping, std::string_view key) {
  return std::ranges::any_of(mapping.entries, [&](const auto& entry) { return meant(entry.first.text) == key; });
}

int64_t start_of(const TrainSection& file, size_t phase) { return phase == 0 ? 0 : file.phases[phase - 1].until; }

// The phase of the step after `step` steps.
size_t phase_of(const TrainSection& file, int64_t step) {
  size_t phase = 0;
  while (phase + 1 < file.phases.size() && file.phases[phase].until <= step) ++phase;
  return phase;
}

}  // namespace

void change_settings(TrainSection& train, const Node& mapping, const std::string& source,
                     std::vector<yaml::Problem>& problems) {
  Config config{.train = train};
  DatasetConfig unused;
  const std::string optimizer = train.optimizer, schedule = train.lr_scheduler;
  const auto assign = [&](bool options) {  // what names an optimizer or a schedule goes first: it clears their options
    for (const auto& [name, value] : mapping.entries) {
      const std::string_view key = meant(name.text);
      if (key.empty()) {
        if (options) continue;
        const std::string near = nearest_of(name.text, changeable);
        problems.push_back(
            {name.place, fmt::format("{}: {}. {}", name.text,
                                     schema::find("train." + name.text) ? "cannot change within a run" : "unknown key",
                                     near.empty() ? fmt::format("Expected one of {}", fmt::join(changeable, ", "))
                                                  : fmt::format("Did you mean {}?", near))});
        continue;
      }
      if (options != key.ends_with("_params")) continue;
      std::vector<yaml::Problem> found;
      const schema::Field field = row(key).field(config, unused);
      schema::assign(row(key), field, value, found);
      if (GivenOptions* const* given = std::get_if<GivenOptions*>(&field))
        for (auto& [option, at] : **given) at.source = at.source.empty() ? source : at.source;
      for (const auto& [place, text] : found)
        problems.push_back({value.kind == Kind::null ? name.place : place, fmt::format("{}: {}", name.text, text)});
    }
  };
  assign(false);
  if (config.train.optimizer != optimizer) config.train.optimizer_params.clear();
  if (config.train.lr_scheduler != schedule) config.train.lr_scheduler_params.clear();
  assign(true);
  train = std::move(config.train);
}

namespace {

Node setting_of(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0)
    fail(Code::config, "{}: expected KEY=VALUE, such as lr=1e-5", assignment);
  std::string key = assignment.substr(0, equals);
  if (key.starts_with("train.")) key.erase(0, 6);
  Node value = parsed(fmt::format("v: {}", assignment.substr(equals + 1)), assignment + ": ").entries[0].second;
  while (true) {
    const size_t dot = key.rfind('.');
    Node mapping{.kind = Kind::map};
    mapping.entries.emplace_back(Node{.kind = Kind::scalar, .text = key.substr(dot == key.npos ? 0 : dot + 1)},
                                 std::move(value));
    if (dot == key.npos) return mapping;
    value = std::move(mapping);
    key.erase(dot);
  }
}

}  // namespace

Node settings_of(const std::vector<std::string>& assignments) {
  Node all{.kind = Kind::map};
  for (const std::string& assignment : assignments) merge(all, setting_of(assignment));
  return all;
}

void check_phases(const TrainSection& train) {
  const auto complain = [](const Phase& phase, const std::string& what) {
    fail(Code::config, "{}:{}:{}: train.phases: {}", phase.source, phase.place.line, phase.place.column, what);
  };
  for (size_t i = 1; i < train.phases.size(); ++i)
    if (start_of(train, i) >= train.steps)
      complain(train.phases[i], fmt::format("this phase begins after step {}, but the run has {}. Raise train.steps, "
                                            "or remove it",
                                            start_of(train, i), train.steps));
  if (!train.phases.empty() && train.phases.back().until > 0 && train.phases.back().until < train.steps)
    complain(train.phases.back(), fmt::format("nothing says what follows after step {}. Leave `until` out of the last "
                                              "phase, or add another",
                                              train.phases.back().until));
}

RunSettings::RunSettings(const TrainSection& file, int64_t step) : file_(file), phase_(phase_of(file, step)) {
  lay_over();
}

std::optional<size_t> RunSettings::phase_at(int64_t step) const {
  const size_t next = phase_of(file_, step);
  return next == phase_ ? std::nullopt : std::optional(next);
}

void RunSettings::enter_phase(size_t phase) {
  phase_ = phase;
  by_hand_.entries.clear();
  lay_over();
}

void RunSettings::lay_over() {
  std::vector<yaml::Problem> problems;
  train_ = file_;
  first_ = 0;
  end_ = file_.steps;
  if (!file_.phases.empty()) {
    const Phase& phase = file_.phases[phase_];
    change_settings(train_, phase.settings, phase.source, problems);
    if (names(phase.settings, "lr_scheduler")) {
      first_ = start_of(file_, phase_);
      end_ = phase.until > 0 ? phase.until : file_.steps;
    }
  }
  change_settings(train_, by_hand_, "", problems);
  if (names(by_hand_, "lr_scheduler")) {
    first_ = set_at_;
    end_ = file_.steps;
  }
  if (!problems.empty()) report("", problems);
}

void RunSettings::set(const Node& mapping, int64_t step, const std::string& source) {
  TrainSection tried = train_;
  std::vector<yaml::Problem> problems;
  change_settings(tried, mapping, source, problems);
  if (!problems.empty()) report(source, problems);
  check_schedule_params(tried, source);
  if (tried.optimizer != train_.optimizer) erase(by_hand_, "optimizer_params");
  if (tried.lr_scheduler != train_.lr_scheduler) erase(by_hand_, "lr_scheduler_params");
  if (names(mapping, "lr_scheduler")) set_at_ = step;
  Node named = mapping;  // by one spelling of each key
  for (auto& [name, value] : named.entries) name.text = meant(name.text);
  merge(by_hand_, named);
  lay_over();
}

void RunSettings::replace_file(const TrainSection& file, int64_t step) {
  for (const std::string_view key : changeable)
    if (printed(file, key) != printed(file_, key)) {
      erase(by_hand_, key);
      if (key == "optimizer" || key == "lr_scheduler") erase(by_hand_, fmt::format("{}_params", key));
    }
  file_ = file;
  phase_ = phase_of(file, step);
  lay_over();
}

std::string RunSettings::summary() const {
  std::vector<std::string> all{"optimizer " + train_.optimizer, fmt::format("lr {}", train_.learning_rate())};
  for (const std::string_view key : changeable)
    if (key != "optimizer" && key != "lr" && printed(train_, key) != printed({}, key))
      all.push_back(fmt::format("{} {}", key, printed(train_, key)));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string RunSettings::file_text(const TrainSection& file) {
  std::string text;
  const auto add = [&](std::string_view key) {
    if (const std::string value = printed(file, key); !value.empty())
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key, value);
  };
  add("steps");
  std::ranges::for_each(changeable, add);
  add("phases");
  return "{" + text + "}";
}

TrainSection RunSettings::file_of(const std::string& text, const std::string& source) {
  Config config;
  DatasetConfig unused;
  std::vector<yaml::Problem> problems;
  for (const auto& [name, value] : parsed(text, source + ": ").entries)
    if (const schema::Key* key = schema::find("train." + name.text))
      schema::assign(*key, key->field(config, unused), value, problems);
    else
      problems.push_back({name.place, name.text + ": unknown key"});
  if (!problems.empty()) report(source + ": ", problems);
  return config.train;
}

std::string RunSettings::text() const {
  return nlohmann::json{
      {"file", file_text()}, {"phase", phase_}, {"set", schema::print_node(by_hand_)}, {"schedule_set_at", set_at_}}
      .dump();
}

RunSettings RunSettings::of(const std::string& text, const std::string& source) {
  try {
    const auto json = nlohmann::json::parse(text);
    RunSettings settings(file_of(json.at("file"), source));
    for (const char* number : {"phase", "schedule_set_at"})
      if (!json.at(number).is_number_unsigned() || json.at(number).get<uint64_t>() > INT64_MAX)
        fail(Code::data, "{}: expected a whole number that is not negative, found another {}", number,
             json.at(number).type_name());
    settings.phase_ = json.at("phase");
    if (settings.phase_ > 0 && settings.phase_ >= settings.file_.phases.size())
      fail(Code::data, "there is no phase {}", settings.phase_);
    settings.by_hand_ = parsed(json.at("set"), "");
    settings.set_at_ = json.at("schedule_set_at");
    settings.lay_over();
    return settings;
  } catch (const nlohmann::json::exception& error) {
    fail(Code::data, "{}: its settings cannot be read: {}", source, error.what());
  } catch (const Error& error) {
    fail(Code::data, "{}: its settings cannot be read: {}", source, error.what());
  }
}

}  // namespace lh
