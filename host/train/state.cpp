// Writes generations of the state, and puts the newest that is good into the run.
#include "train/state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "run/optimizer_state.h"
#include "train/fact_changes.h"

namespace lh {
namespace {

constexpr const char* average_section = "ema";

// The LoRA file of that step, or the one that was written last (the final one has no step in its name), beside the
// folder of states; for advice.
std::string lora_beside(const std::filesystem::path& state, int64_t step) {
  std::string best;
  std::filesystem::file_time_type newest;
  std::error_code error, unread;
  const std::filesystem::path folder = state.parent_path().parent_path();
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string path = entry->path().string();
    if (!path.ends_with(".safetensors")) continue;
    if (path.ends_with(fmt::format("_{:09}.safetensors", step))) return path;
    const auto written = entry->last_write_time(unread);
    if (!unread && (best.empty() || written > newest)) std::tie(best, newest) = std::tuple(path, written);
  }
  return best.empty() ? "FILE" : best;
}

// A step is as large as it was: either the accumulation has not changed, or it makes up for the number of processes.
// Puts what differs and is allowed into the state.
void check_facts(FoundState& found, const StateSource& from, const Facts& facts) {
  Facts saved;
  for (const auto& [key, value] : found.record.metadata)
    if (key.starts_with(fact_prefix)) saved[key.substr(std::string_view(fact_prefix).size())] = value;
  Facts now = facts;
  if (!saved.contains(arithmetic_fact)) now.erase(arithmetic_fact);
  if (from.micro_batches > 0 && from.micro_batches == found.state.micro_batches) now.erase(accumulation_fact);
  const std::vector<FactChange> changes = changed_facts(saved, now);
  if (changes.empty()) return;
  const bool may = std::ranges::all_of(changes, &FactChange::may);
  std::string lines;
  for (const FactChange& change : changes) {
    lines += fmt::format("\n  {}{}", change.text, change.may && !may ? " [--allow-changes would do]" : "");
    found.state.broken += (found.state.broken.empty() ? "" : "; ") + change.text;
  }
  if (may && from.allow_changes) {
    const auto accumulation = now.find(accumulation_fact);
    if (accumulation != now.end() && accumulation->second != saved[accumulation_fact])
      found.state.micro_batches = from.micro_batches;
    return;
  }
  fail(Code::config, "{}: the run cannot be continued, it would not be the same training:{}\nSet these back{}",
       found.path.string(), lines,
       may ? ", or go on all the same with --allow-changes, which notes the break in history.jsonl"
           : fmt::format(
                 ", or begin another run where this one stands: another name, and network.pretrained_lora_path: {}",
                 lora_beside(found.path, found.state.step)));
}

void upload_trained(const FoundState& found, const Adapters& adapters, const std::string& section) {
  const Safetensors& file = *found.record.file;
  for (const AdapterTensor& tensor : adapters.tensors()) {  // all before any is changed
    const StoredTensor* const stored = file.find(section + "/" + tensor.name);
    const Desc wanted{DType::f32, tensor.shape};
    if (stored == nullptr || stored->desc != wanted)
      fail(Code::config, "{}: expected the tensor '{}/{}' as {}, found {}", found.path.string(), section, tensor.name,
           wanted.text(), stored == nullptr ? "none" : stored->desc.text());
  }
  for (const AdapterTensor& tensor : adapters.tensors())
    adapters.upload(section, tensor, found.record.read(section + "/" + tensor.name));
}

// The average of the weights, where the file and the run have one; what begins or ends is said.
void load_average(FoundState& found, const Adapters& adapters) {
  const bool kept = adapters.has(average_section);
  if (found.state.averaged && kept) return upload_trained(found, adapters, average_section);
  if (found.state.averaged)
    log_warning(
        "train.ema_config.use_ema: the saved run has an average of the weights, this one keeps none; after step {} "
        "files and samples hold the weights themselves",
        found.state.step);
  else if (kept)
    log_warning(
        "train.ema_config.use_ema: the saved run has no average of the weights; it begins as a copy of those after "
        "step {}",
        found.state.step);
  found.state.averaged.reset();
}

// What a state holds, in the order of its file: brought from the device when it is asked for.
class StateTensors {
 public:
  StateTensors(const RunState& state, const Adapters& adapters, const Update& update) {
    std::vector<std::string> sections = adapters.saved_sections();
    if (adapters.has(average_section)) sections.emplace_back(average_section);
    for (const std::string& section : sections)
      for (const AdapterTensor& tensor : adapters.tensors())
        add(section + "/" + tensor.name, {DType::f32, tensor.shape},
            [&adapters, &tensor, section] { return adapters.download(section, tensor); });
    for (const StoredState& stored : update.states())
      add(stored.key, stored.desc, [&update, &stored] { return update.download(stored); });
    add("loss_scale", {DType::f32, {2}}, [&state] { return HostTensor::from_floats({2}, state.loss_scale); });
  }
  const std::vector<std::pair<std::string, Desc>>& entries() const { return entries_; }
  HostTensor values(size_t i) const { return values_[i](); }

 private:
  void add(std::string name, Desc desc, std::function<HostTensor()> values) {
    entries_.emplace_back(std::move(name), std::move(desc));
    values_.push_back(std::move(values));
  }
  std::vector<std::pair<std::string, Desc>> entries_;
  std::vector<std::function<HostTensor()>> values_;
};

}  // namespace

void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep) {
  make_folder(folder);
  const StateTensors tensors(state, adapters, update);
  std::map<std::string, std::string> metadata{{"updates", std::to_string(state.updates)},
                                              {"saves", fmt::format("{}", fmt::join(state.saves, ","))}};
  for (const auto& [key, value] : state.facts) metadata[fact_prefix + key] = value;
  if (state.averaged) metadata[averaged_key] = std::to_string(*state.averaged);
  if (const auto own = state.facts.find(accumulation_fact);
      state.micro_batches > 0 && own != state.facts.end() && own->second != std::to_string(state.micro_batches))
    metadata[micro_batches_key] = std::to_string(state.micro_batches);
  if (!state.settings.empty()) {
    metadata["settings"] = state.settings;
    metadata["changes"] = std::to_string(state.changes);
  }
  for (const auto& [rank, lines] : state.choices) metadata[fmt::format("{}{}", choices_prefix, rank)] = lines;
  metadata.merge(optimizer_facts(update));
  const std::string name = state_name(state.step);
  // Brought from the device twice, one tensor at a time: together they may be several times the model.
  NonFinite wrong;
  metadata = sealed_metadata({state_kind, name}, tensors.entries(), std::move(metadata),
                             [&](size_t i, const WriteBytes& write) {
                               const HostTensor values = tensors.values(i);
                               wrong.look_at(tensors.entries()[i].first, values.desc, values.data.data());
                               write(values.data);
                             });
  if (const std::string why = wrong.text(); !why.empty())
    fail(
        Code::numeric,
        "step {}: {} of the trained tensors and the optimizer's states. This was not saved, and the last checkpoint is "
        "untouched. Lower train.lr, or correct train.optimizer_params (an eps of 0 divides by 0)",
        state.step, why);
  publish_sealed(folder / (name + ".safetensors"), {state_kind, name}, tensors.entries(), metadata,
                 [&](size_t i, const WriteBytes& write) { write(tensors.values(i).data); });

  const auto all = generations(folder);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 2)); i < all.size(); ++i) remove_old(all[i].path);
}

std::optional<RunState> check_state(const StateSource& from, const std::map<std::string, std::string>& facts) {
  std::optional<FoundState> found = find_state(from, false);
  if (!found) return std::nullopt;
  check_facts(*found, from, facts);
  found->state.facts = facts;
  return found->state;
}

std::optional<RunState> load_state(const StateSource& from, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update) {
  std::optional<FoundState> found = find_state(from, true);
  if (!found) return std::nullopt;
  check_facts(*found, from, facts);
  for (const std::string& section : adapters.saved_sections()) upload_trained(*found, adapters, section);
  load_average(*found, adapters);
  found->state.facts = facts;
  const Safetensors& file = *found->record.file;
  OptimizerValues values{.states = {},
                         .read = [&](const std::string& key) { return found->record.read(key); },
                         .facts = std::move(found->record.metadata)};
  for (const StoredTensor& tensor : file.tensors()) values.states[tensor.name] = tensor.desc;
  const TakeOver taken = load_optimizer(values, update);
  if (!taken.all_kept()) found->state.updates = 0;
  if (!taken.same_rule || !taken.all_kept()) log_warning("{}: {}", found->path.string(), taken.text());
  return found->state;
}

}  // namespace lh
