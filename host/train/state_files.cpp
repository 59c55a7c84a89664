// Reading a state trusts nothing: neither the file's name nor what its record says of itself.
#include "train/state_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/log.h"

namespace lh {
namespace {

bool parse_step(std::string_view text, int64_t& step) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc{} && end == text.data() + text.size() && step >= 0;
}

// What is wrong with numbers of a record that is whole: it was not written as save_state writes. Empty: nothing.
std::string parse_numbers(const Record& record, const NonFinite& wrong, RunState& state) {
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
  if (const std::string accumulation = std::string(fact_prefix) + accumulation_fact;
      record.metadata.contains(micro_batches_key) || record.metadata.contains(accumulation)) {
    state.micro_batches =
        number(record.metadata.contains(micro_batches_key) ? micro_batches_key : accumulation.c_str());
    if (state.micro_batches < 1) return "its number of micro-batches is none";
  }
  if (const auto saves = record.metadata.find("saves"); saves != record.metadata.end())
    for (size_t at = 0; at < saves->second.size();) {
      const size_t end = std::min(saves->second.find(',', at), saves->second.size());
      int64_t step = 0;
      if (!parse_step(std::string_view(saves->second).substr(at, end - at), step)) return "its list of saves is none";
      state.saves.insert(step);
      at = end + 1;
    }
  for (const auto& [key, value] : record.metadata)
    if (key.starts_with(choices_prefix)) {
      int64_t rank = 0;
      if (!parse_step(std::string_view(key).substr(choices_prefix.size()), rank)) return "its choices are of no rank";
      state.choices[rank] = value;
    }
  const StoredTensor* const scale = record.file->find("loss_scale");
  if (scale == nullptr || scale->desc != Desc{DType::f32, {2}}) return "it has no loss_scale, float32 [2]";
  std::memcpy(state.loss_scale.data(), record.read("loss_scale").data.data(), sizeof(state.loss_scale));
  if (!(state.loss_scale[0] > 0)) return fmt::format("its loss scale is {}", state.loss_scale[0]);
  return wrong.text();
}

// A file that is passed over must not count as one of the generations that are kept: newer than all good ones, it would
// push them out. One of the step that was set aside before stays.
void set_aside(const std::filesystem::path& path, const char* why) {
  std::error_code none;
  std::filesystem::path aside = path.string() + why;
  for (int n = 2; std::filesystem::exists(aside, none); ++n) aside = fmt::format("{}{}.{}", path.string(), why, n);
  std::filesystem::rename(path, aside, none);
}

// The record of one file, with its numbers; or what is wrong with it, in `record`.
FoundState look_at(const Generation& generation) {
  NonFinite wrong;
  const auto look = [&](const std::string& name, const HostTensor& t) { wrong.look_at(name, t.desc, t.data.data()); };
  FoundState found{generation.path, check_record(generation.path, {state_kind, state_name(generation.step)}, look), {}};
  if (found.record.answer != RecordAnswer::ok) return found;
  found.state.step = generation.step;
  const std::string why = parse_numbers(found.record, wrong, found.state);
  if (why.empty()) return found;
  found.record.answer = RecordAnswer::damaged;
  found.record.why = fmt::format("{}: {}", generation.path.string(), why);
  return found;
}

// The newest state that is good among those that were not looked at, in the words of what to do.
std::string advice(const StateSource& from, const std::vector<Generation>& others) {
  const std::string anew = from.own ? "begin anew with --resume-from none" : "leave --resume out to begin anew";
  for (const Generation& other : others)
    if (look_at(other).record.answer == RecordAnswer::ok)
      return fmt::format("Go on from {} with --resume-from {}, or {}", other.path.string(), other.step, anew);
  return fmt::format("There is no good state beside: {}, which computes all steps again", anew);
}

[[noreturn]] void refuse(const std::string& why, const std::string& what_to_do) {
  fail(Code::data, "{}\nThe run was not started. {}", why, what_to_do);
}

}  // namespace

std::string state_name(int64_t step) { return fmt::format("{:09}", step); }

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

void NonFinite::look_at(const std::string& name, const Desc& desc, const void* data) {
  const int64_t elements = desc.shape.numel(), found = count_non_finite(desc.dtype, data, elements);
  if (found > 0 && tensors_++ == 0) first_ = fmt::format("{} of {} values of `{}`", found, elements, name);
}

std::string NonFinite::text() const {
  if (tensors_ == 0) return {};
  return fmt::format("NaN or infinity in {}{}", first_,
                     tensors_ == 1 ? "" : fmt::format(" and in {} more tensors", tensors_ - 1));
}

std::optional<FoundState> find_state(const StateSource& from, bool act) {
  if (from.folder.empty()) return std::nullopt;
  std::vector<Generation> all = generations(from.folder), others;
  if (from.step) {
    const auto is_other = [&](const Generation& g) { return g.step != *from.step; };
    std::ranges::copy_if(all, std::back_inserter(others), is_other);
    std::erase_if(all, is_other);
    if (all.empty())
      refuse(fmt::format("{}: there is no state of step {}", from.folder.string(), *from.step), advice(from, others));
  }
  std::vector<std::pair<std::filesystem::path, const char*>> passed_over;
  std::string reasons;
  for (size_t i = 0; i < all.size(); ++i) {
    FoundState found = look_at(all[i]);
    const RecordAnswer answer = found.record.answer;
    const std::string& why = found.record.why;
    if (answer == RecordAnswer::absent) continue;  // removed since it was listed
    if (answer == RecordAnswer::unreadable) {
      others.insert(others.end(), all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.end());
      refuse(why + ": this state may be good, so it is not passed over",
             "Correct that and run again. Or do without it: " + advice(from, others));
    }
    if (answer == RecordAnswer::ok) {
      if (!act) return found;
      for (const auto& [path, end] : passed_over)
        if (from.own && from.writes) set_aside(path, end);
      return found;
    }
    if (act) log_warning("checkpoint passed over: {}", why);
    reasons += (reasons.empty() ? "" : "\n") + why;
    passed_over.emplace_back(all[i].path, answer == RecordAnswer::foreign ? ".foreign" : ".damaged");
  }
  if (!passed_over.empty()) refuse(reasons, advice(from, others));
  return std::nullopt;
}

void set_aside_states(const std::filesystem::path& folder, std::optional<int64_t> step) {
  for (const Generation& generation : generations(folder))
    if (!step || generation.step > *step) set_aside(generation.path, ".superseded");
}

}  // namespace lh
