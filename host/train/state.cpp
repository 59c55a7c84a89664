// Writes generations of the state, and reads the newest that is whole.
#include "train/state.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "io/safetensors.h"
#include "run/optimizer_state.h"

namespace lh {
namespace {

constexpr const char* fact_prefix = "fact.";

// State files by step, newest first.
std::vector<std::pair<int64_t, std::filesystem::path>> generations(const std::filesystem::path& folder) {
  std::vector<std::pair<int64_t, std::filesystem::path>> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string stem = entry.path().stem().string();
    int64_t step = 0;
    const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), step);
    if (entry.path().extension() == ".safetensors" && error == std::errc{} && end == stem.data() + stem.size())
      found.emplace_back(step, entry.path());
  }
  std::ranges::sort(found, std::greater{});
  return found;
}

std::string digest(const std::vector<TensorToWrite>& tensors, const std::map<std::string, std::string>& metadata) {
  Sha256 hash;
  for (const auto& [key, value] : metadata)
    if (key != "digest") hash.update(fmt::format("{}={}\n", key, value));
  for (const TensorToWrite& t : tensors) {
    hash.update(t.name);
    hash.update({static_cast<const std::byte*>(t.data), static_cast<size_t>(t.desc.bytes())});
  }
  return hash.hex();
}

void check_facts(const Safetensors& file, const std::map<std::string, std::string>& facts) {
  std::string differences;
  for (const auto& [key, now] : facts) {
    const auto it = file.metadata().find(fact_prefix + key);
    const std::string saved = it == file.metadata().end() ? "(not recorded)" : it->second;
    if (saved != now) differences += fmt::format("\n  {}: the saved run has {}, this one {}", key, saved, now);
  }
  if (!differences.empty())
    fail(Code::config,
         "{}: the run cannot be continued, it would not be the same training:{}\nSet these back, or give the new run "
         "another name",
         file.path().string(), differences);
}

// Reads one state file completely before anything is uploaded, so that a damaged one changes nothing.
std::map<std::string, HostTensor> read_verified(const Safetensors& file) {
  std::map<std::string, HostTensor> tensors;
  std::vector<TensorToWrite> order;
  for (const StoredTensor& t : file.tensors()) tensors[t.name] = file.read(t.name);
  for (const StoredTensor& t : file.tensors()) order.push_back({t.name, t.desc, tensors[t.name].data.data()});
  const auto expected = file.metadata().find("digest");
  if (expected == file.metadata().end() || expected->second != digest(order, file.metadata()))
    fail(Code::data, "{}: the content does not match its checksum", file.path().string());
  return tensors;
}

// A damaged file must not count as one of the generations that are kept: newer than all good ones, it would push them
// out.
void set_aside(const std::filesystem::path& path) {
  std::error_code none;
  std::filesystem::rename(path, path.string() + ".damaged", none);
}

void upload_trained(const std::map<std::string, HostTensor>& tensors, const Adapters& adapters) {
  for (const AdapterTensor& tensor : adapters.tensors()) {
    const auto it = tensors.find("p/" + tensor.name);
    if (it == tensors.end() || it->second.desc.shape != tensor.shape)
      fail(Code::config, "the saved run has no trained tensor '{}' of shape {}", tensor.name, tensor.shape.text());
    adapters.upload("p", tensor, it->second);
  }
}

int64_t number_of(const Safetensors& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  int64_t number = -1;
  if (it != file.metadata().end()) std::from_chars(it->second.data(), it->second.data() + it->second.size(), number);
  if (number < 0) fail(Code::data, "{}: the number of {} is missing", file.path().string(), key);
  return number;
}

// Everything of a state but its tensors.
RunState read_header(const Safetensors& file, int64_t step, const std::map<std::string, std::string>& facts) {
  RunState state{.step = step, .facts = facts, .updates = number_of(file, "updates")};
  if (const auto settings = file.metadata().find("settings"); settings != file.metadata().end()) {
    state.settings = settings->second;
    state.changes = number_of(file, "changes");
  }
  return state;
}

}  // namespace

void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep) {
  make_folder(folder);
  std::vector<HostTensor> values;
  std::vector<std::string> names;
  for (const AdapterTensor& tensor : adapters.tensors()) {
    names.push_back("p/" + tensor.name);
    values.push_back(adapters.download("p", tensor));
  }
  for (const StoredState& stored : update.states()) {
    names.push_back(stored.key);
    values.push_back(update.download(stored));
  }
  names.emplace_back("loss_scale");
  values.push_back(HostTensor::from_floats({2}, state.loss_scale));
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < names.size(); ++i) tensors.push_back({names[i], values[i].desc, values[i].data.data()});
  std::map<std::string, std::string> metadata{{"step", std::to_string(state.step)},
                                              {"updates", std::to_string(state.updates)}};
  for (const auto& [key, value] : state.facts) metadata[fact_prefix + key] = value;
  if (!state.settings.empty()) {
    metadata["settings"] = state.settings;
    metadata["changes"] = std::to_string(state.changes);
  }
  metadata.merge(optimizer_facts(update));
  metadata["digest"] = digest(tensors, metadata);
  write_safetensors(folder / fmt::format("{:09}.safetensors", state.step), tensors, metadata);

  const auto all = generations(folder);
  std::error_code none;  // an old file that stays harms nobody
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 2)); i < all.size(); ++i)
    std::filesystem::remove(all[i].second, none);
}

std::optional<RunState> check_state(const std::filesystem::path& folder,
                                    const std::map<std::string, std::string>& facts) {
  for (const auto& [step, path] : generations(folder)) {
    std::optional<Safetensors> file;
    RunState state;
    try {
      file.emplace(path);
      read_verified(*file);
      state = read_header(*file, step, facts);
    } catch (const Error&) {
      continue;  // load_state will say so
    }
    check_facts(*file, facts);
    return state;
  }
  return std::nullopt;
}

std::optional<RunState> load_state(const std::filesystem::path& folder, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update) {
  for (const auto& [step, path] : generations(folder)) {
    std::optional<Safetensors> file;
    OptimizerValues values;
    RunState state;
    try {
      file.emplace(path);
      values = {read_verified(*file), file->metadata()};
      state = read_header(*file, step, facts);
    } catch (const Error& e) {
      spdlog::warn("checkpoint passed over: {}", e.what());
      set_aside(path);
      continue;
    }
    check_facts(*file, facts);
    upload_trained(values.tensors, adapters);
    const TakeOver taken = load_optimizer(values, update);
    if (!taken.all_kept()) state.updates = 0;
    if (!taken.same_rule || !taken.all_kept()) spdlog::warn("{}: {}", path.string(), taken.text());
    const auto scale = values.tensors.at("loss_scale").as<float>();
    state.loss_scale = {scale[0], scale[1]};
    return state;
  }
  return std::nullopt;
}

}  // namespace lh
