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
  for (const std::string& section : adapters.saved_sections())
    for (const AdapterTensor& tensor : adapters.tensors()) {
      const auto it = tensors.find(section + "/" + tensor.name);
      if (it == tensors.end() || it->second.desc.shape != tensor.shape)
        fail(Code::config, "the saved run has no trained tensor '{}' of shape {}", tensor.name, tensor.shape.text());
      adapters.upload(section, tensor, it->second);
    }
}

// The number of optimizer updates in a state file.
int64_t updates_of(const Safetensors& file) {
  const auto it = file.metadata().find("updates");
  int64_t updates = -1;
  if (it != file.metadata().end()) std::from_chars(it->second.data(), it->second.data() + it->second.size(), updates);
  if (updates < 0) fail(Code::data, "{}: the number of optimizer updates is missing", file.path().string());
  return updates;
}

}  // namespace

void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep) {
  make_folder(folder);
  std::vector<HostTensor> values;
  std::vector<std::string> names;
  for (const std::string& section : adapters.saved_sections())
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
  std::map<std::string, std::string> metadata{{"step", std::to_string(state.step)},
                                              {"updates", std::to_string(state.updates)}};
  for (const auto& [key, value] : state.facts) metadata[fact_prefix + key] = value;
  metadata.merge(optimizer_facts(update));
  metadata["digest"] = digest(tensors, metadata);
  write_safetensors(folder / fmt::format("{:09}.safetensors", state.step), tensors, metadata);

  const auto all = generations(folder);
  std::error_code none;  // an old file that stays harms nobody
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 2)); i < all.size(); ++i)
    std::filesystem::remove(all[i].second, none);
}

void check_state(const std::filesystem::path& folder, const std::map<std::string, std::string>& facts) {
  for (const auto& [step, path] : generations(folder)) {
    std::optional<Safetensors> file;
    try {
      file.emplace(path);
      read_verified(*file);
    } catch (const Error&) {
      continue;  // load_state will say so
    }
    return check_facts(*file, facts);
  }
}

std::optional<RunState> load_state(const std::filesystem::path& folder, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update) {
  for (const auto& [step, path] : generations(folder)) {
    std::optional<Safetensors> file;
    std::map<std::string, HostTensor> tensors;
    RunState state{step, {}, facts};
    try {
      file.emplace(path);
      tensors = read_verified(*file);
      state.updates = updates_of(*file);
    } catch (const Error& e) {
      spdlog::warn("checkpoint passed over: {}", e.what());
      set_aside(path);
      continue;
    }
    check_facts(*file, facts);
    upload_trained(tensors, adapters);
    if (!load_optimizer(tensors, file->metadata(), update)) state.updates = 0;
    const auto scale = tensors.at("loss_scale").as<float>();
    state.loss_scale = {scale[0], scale[1]};
    return state;
  }
  return std::nullopt;
}

}  // namespace lh
