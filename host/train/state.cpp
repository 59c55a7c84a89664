// Writes generations of the state, and reads the newest that is good.
#include "train/state.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "io/record.h"
#include "run/optimizer_state.h"

namespace lh {
namespace {

constexpr std::string_view kind = "state/1";
constexpr const char* fact_prefix = "fact.";
constexpr const char* average_section = "ema";
constexpr const char* averaged_key = "ema.updates";

struct Generation {
  int64_t step = 0;
  std::filesystem::path path;
};

bool parse_step(std::string_view text, int64_t& step) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc{} && end == text.data() + text.size() && step >= 0;
}

std::string name_of(int64_t step) { return fmt::format("{:09}", step); }

// Files that have the name of a state, newest first.
std::vector<Generation> generations(const std::filesystem::path& folder) {
  std::vector<Generation> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    int64_t step = 0;
    if (entry->path().extension() == ".safetensors" && parse_step(entry->path().stem().string(), step))
      found.push_back({step, entry->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail(Code::data, "{}: cannot be listed: {}. Nothing was changed: make the folder readable, and run again",
         folder.string(), error.message());
  std::ranges::sort(found, std::greater{}, &Generation::step);
  return found;
}

void check_facts(const std::filesystem::path& path, const std::map<std::string, std::string>& saved,
                 const std::map<std::string, std::string>& facts) {
  std::string differences;
  for (const auto& [key, now] : facts) {
    const auto it = saved.find(fact_prefix + key);
    const std::string then = it == saved.end() ? "(not recorded)" : it->second;
    if (then != now) differences += fmt::format("\n  {}: the saved run has {}, this one {}", key, then, now);
  }
  if (!differences.empty())
    fail(Code::config,
         "{}: the run cannot be continued, it would not be the same training:{}\nSet these back, or give the new run "
         "another name",
         path.string(), differences);
}

// The first tensors that hold a NaN or an infinity, as a part of a sentence; empty: all values are finite.
std::string non_finite(const std::vector<TensorToWrite>& tensors) {
  std::string first;
  int64_t bad = 0;
  for (const TensorToWrite& t : tensors) {
    const int64_t elements = t.desc.shape.numel(), found = count_non_finite(t.desc.dtype, t.data, elements);
    if (found > 0 && bad++ == 0) first = fmt::format("{} of {} values of `{}`", found, elements, t.name);
  }
  if (bad == 0) return {};
  return fmt::format("NaN or infinity in {}{}", first, bad == 1 ? "" : fmt::format(" and in {} more tensors", bad - 1));
}

std::vector<TensorToWrite> listed(const NamedTensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
  return list;
}

// What is wrong with numbers of a record that is whole: it was not written as save_state writes. Empty: nothing.
std::string parse_numbers(const Record& record, RunState& state) {
  const auto number = [&](const char* key) {
    const auto it = record.metadata.find(key);
    int64_t value = -1;
    return it != record.metadata.end() && parse_step(it->second, value) ? value : -1;
  };
  state.updates = number("updates");
  if (state.updates < 0) return "the number of optimizer updates is missing";
  if (const auto settings = record.metadata.find("settings"); settings != record.metadata.end()) {
    state.settings = settings->second;
    state.changes = number("changes");
    if (state.changes < 0) return "the number of changes is missing";
  }
  if (record.metadata.contains(averaged_key)) {
    state.averaged = number(averaged_key);
    if (*state.averaged < 0) return "the number of updates of the average is missing";
  }
  if (const auto saves = record.metadata.find("saves"); saves != record.metadata.end())
    for (size_t at = 0; at < saves->second.size();) {
      const size_t end = std::min(saves->second.find(',', at), saves->second.size());
      int64_t step = 0;
      if (!parse_step(std::string_view(saves->second).substr(at, end - at), step)) return "its list of saves is none";
      state.saves.insert(step);
      at = end + 1;
    }
  const auto scale = record.tensors.find("loss_scale");
  if (scale == record.tensors.end() || scale->second.desc != Desc{DType::f32, {2}})
    return "it has no loss_scale, float32 [2]";
  state.loss_scale = {scale->second.as<float>()[0], scale->second.as<float>()[1]};
  if (!(state.loss_scale[0] > 0)) return fmt::format("its loss scale is {}", state.loss_scale[0]);
  return non_finite(listed(record.tensors));
}

struct Found {
  std::filesystem::path path;
  Record record;
  RunState state;
};

// A file that is passed over must not count as one of the generations that are kept: newer than all good ones, it would
// push them out.
void set_aside(const std::filesystem::path& path, const char* why) {
  std::error_code none;
  std::filesystem::rename(path, path.string() + why, none);
}

[[noreturn]] void refuse(const std::string& why) {
  fail(Code::data,
       "{}\nThe run was not started. Correct that and run again, or choose with --resume-from STEP the state "
       "to go on from, with --resume-from none a new start",
       why);
}

// The state to go on from. act: warn of what is passed over and, in the run's own folder, set it aside once a good one
// is found.
std::optional<Found> find_state(const StateSource& from, bool act) {
  if (from.folder.empty()) return std::nullopt;
  std::vector<Generation> all = generations(from.folder);
  if (from.step) {
    std::erase_if(all, [&](const Generation& g) { return g.step != *from.step; });
    if (all.empty()) refuse(fmt::format("{}: there is no state of step {}", from.folder.string(), *from.step));
  }
  std::vector<std::pair<std::filesystem::path, const char*>> passed_over;
  std::string reasons;
  for (const Generation& generation : all) {
    Found found{generation.path, read_record(generation.path, {kind, name_of(generation.step)}), {}};
    RecordAnswer answer = found.record.answer;
    std::string why = found.record.why;
    if (answer == RecordAnswer::absent) continue;  // removed since it was listed
    if (answer == RecordAnswer::unreadable) refuse(why + ": this state may be good, so it is not passed over");
    if (answer == RecordAnswer::ok) {
      found.state.step = generation.step;
      why = parse_numbers(found.record, found.state);
      if (!why.empty()) why = fmt::format("{}: {}", generation.path.string(), why);
    }
    if (why.empty()) {
      if (!act) return found;
      for (const auto& [path, end] : passed_over)
        if (from.own) set_aside(path, end);
      return found;
    }
    if (act) spdlog::warn("checkpoint passed over: {}", why);
    reasons += (reasons.empty() ? "" : "\n") + why;
    passed_over.emplace_back(generation.path, answer == RecordAnswer::foreign ? ".foreign" : ".damaged");
  }
  if (!passed_over.empty()) refuse(reasons + "\nThere is no good state beside");
  return std::nullopt;
}

void upload_trained(const Found& found, const Adapters& adapters, const std::string& section) {
  const auto value_of = [&](const AdapterTensor& tensor) -> const HostTensor& {
    const auto it = found.record.tensors.find(section + "/" + tensor.name);
    const Desc wanted{DType::f32, tensor.shape};
    if (it == found.record.tensors.end() || it->second.desc != wanted)
      fail(Code::config, "{}: expected the tensor '{}/{}' as {}, found {}", found.path.string(), section, tensor.name,
           wanted.text(), it == found.record.tensors.end() ? "none" : it->second.desc.text());
    return it->second;
  };
  for (const AdapterTensor& tensor : adapters.tensors()) value_of(tensor);  // all before any is changed
  for (const AdapterTensor& tensor : adapters.tensors()) adapters.upload(section, tensor, value_of(tensor));
}

// The average of the weights, where the file and the run have one; what begins or ends is said.
void load_average(Found& found, const Adapters& adapters) {
  const bool kept = adapters.has(average_section);
  if (found.state.averaged && kept) return upload_trained(found, adapters, average_section);
  if (found.state.averaged)
    spdlog::warn(
        "train.ema_config.use_ema: the saved run has an average of the weights, this one keeps none; after step {} "
        "files and samples hold the weights themselves",
        found.state.step);
  else if (kept)
    spdlog::warn(
        "train.ema_config.use_ema: the saved run has no average of the weights; it begins as a copy of those after "
        "step {}",
        found.state.step);
  found.state.averaged.reset();
}

}  // namespace

void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep) {
  make_folder(folder);
  std::vector<HostTensor> values;
  std::vector<std::string> names;
  std::vector<std::string> sections = adapters.saved_sections();
  if (adapters.has(average_section)) sections.emplace_back(average_section);
  for (const std::string& section : sections)
    for (const AdapterTensor& tensor : adapters.tensors()) {
      names.push_back(section + "/" + tensor.name);
      values.push_back(adapters.download(section, tensor));
    }
  for (const StoredState& stored : update.states()) {
    names.push_back(stored.key);
    values.push_back(update.download(stored));
  }
  names.emplace_back("loss_scale");
  values.push_back(HostTensor::from_floats({2}, state.loss_scale));
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < names.size(); ++i) tensors.push_back({names[i], values[i].desc, values[i].data.data()});
  if (const std::string why = non_finite(tensors); !why.empty())
    fail(
        Code::numeric,
        "step {}: {} of the trained tensors and the optimizer's states. This was not saved, and the last checkpoint is "
        "untouched. Lower train.lr, or correct train.optimizer_params (an eps of 0 divides by 0)",
        state.step, why);
  std::map<std::string, std::string> metadata{{"updates", std::to_string(state.updates)},
                                              {"saves", fmt::format("{}", fmt::join(state.saves, ","))}};
  for (const auto& [key, value] : state.facts) metadata[fact_prefix + key] = value;
  if (state.averaged) metadata[averaged_key] = std::to_string(*state.averaged);
  if (!state.settings.empty()) {
    metadata["settings"] = state.settings;
    metadata["changes"] = std::to_string(state.changes);
  }
  metadata.merge(optimizer_facts(update));
  const std::string name = name_of(state.step);
  write_record(folder / (name + ".safetensors"), {kind, name}, tensors, metadata);

  const auto all = generations(folder);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 2)); i < all.size(); ++i) remove_old(all[i].path);
}

std::optional<RunState> check_state(const StateSource& from, const std::map<std::string, std::string>& facts) {
  std::optional<Found> found = find_state(from, false);
  if (!found) return std::nullopt;
  check_facts(found->path, found->record.metadata, facts);
  found->state.facts = facts;
  return found->state;
}

std::optional<RunState> load_state(const StateSource& from, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update) {
  std::optional<Found> found = find_state(from, true);
  if (!found) return std::nullopt;
  check_facts(found->path, found->record.metadata, facts);
  for (const std::string& section : adapters.saved_sections()) upload_trained(*found, adapters, section);
  load_average(*found, adapters);
  found->state.facts = facts;
  const TakeOver taken = load_optimizer({std::move(found->record.tensors), std::move(found->record.metadata)}, update);
  if (!taken.all_kept()) found->state.updates = 0;
  if (!taken.same_rule || !taken.all_kept()) spdlog::warn("{}: {}", found->path.string(), taken.text());
  return found->state;
}

void set_aside_states(const std::filesystem::path& folder, std::optional<int64_t> step) {
  for (const Generation& generation : generations(folder))
    if (!step || generation.step > *step) set_aside(generation.path, ".superseded");
}

}  // namespace lh
