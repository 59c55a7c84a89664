// A LoRA file of any tool as the start of training: each module found, its tensors put where they are trained.
#include "compile/warm_start.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "io/lora_merge.h"
#include "io/lora_seal.h"

namespace lh {
namespace {

bool is_pair(const AdaptedModule& module) { return module.tensors.size() == 2 && module.value(down_key); }

// Why a module is no pair of matrices that training can go on with; empty: it is one.
std::string no_pair(const LoraEntry& entry) {
  if (entry.kind == LoraKind::full) return "it is a whole change of the weight, not a pair of matrices";
  if (entry.kind != LoraKind::lora)
    return fmt::format("{} cannot be continued as a plain LoRA", lora_kind_name(entry.kind));
  if (entry.has(LoraPart::mid)) return "a Tucker decomposition cannot be continued as a plain LoRA";
  if (entry.has(LoraPart::magnitude)) return "DoRA cannot be continued as a plain LoRA";
  if (entry.has(LoraPart::diff_bias)) return "it changes a bias, which is not trained";
  return {};
}

}  // namespace

WarmStart::WarmStart(const std::filesystem::path& path, const CheckpointSpec& spec,
                     const std::map<std::string, Desc>& weights, const Adapters& adapters)
    : file_(read_lora(path)) {
  check_lora_seal(*file_.file);
  require_finite(*file_.file);
  const LoraNameTable names(spec, weights);
  const auto refuse = [&](const std::vector<LoraProblem>& why) {
    fail(Code::data, "network.pretrained_lora_path: {}: training cannot go on from it:{}", path.string(), listed(why));
  };
  for (const AdaptedModule& module : adapters.adapted())
    if (module.form.from_start)
      fail(Code::config,
           "network.pretrained_lora_path: {}: the adapter of {} begins with factors of the weight and cannot begin "
           "with a file as well. Remove one of the two: the file, or network_kwargs.init",
           path.string(), module.name);
  if (!std::ranges::all_of(adapters.adapted(), is_pair)) {
    std::vector<LoraProblem> wrong;
    exact_.emplace(file_, names, adapters, wrong);
    if (wrong.empty() && exact_->modules() == 0)
      wrong.push_back({path.filename().string(), "no tensor of it is part of such an adapter"});
    if (!wrong.empty()) refuse(wrong);
    return;
  }
  std::vector<LoraProblem> problems = file_.problems;
  const auto trained = [&](const std::string& module) {
    return std::ranges::any_of(adapters.adapted(), [&](const AdaptedModule& m) { return m.name == module; });
  };
  for (const LoraEntry& entry : file_.entries) {
    const LoraPlace* place = names.find(entry.name);
    std::string why = no_pair(entry);
    if (why.empty() && place == nullptr) why = "no layer of this model has this name, in any tool's spelling";
    if (why.empty()) why = misfit(entry, *place, weights);
    if (why.empty() && !trained(place->module))
      why = fmt::format("{} is not trained by this run: add it to the targets, or remove it from the file",
                        place->module);
    if (why.empty())
      parts_[place->module].push_back({&entry, *place});
    else
      problems.push_back({entry.name, std::move(why)});
  }
  int64_t linear = 0, conv = 0;  // ranks that are not there
  for (size_t i = 0; i < adapters.adapted().size(); ++i) {
    const auto found = parts_.find(adapters.adapted()[i].name);
    if (found == parts_.end()) continue;
    const Shape& down = adapters.tensors()[adapters.first_tensor(i)].shape;
    const int64_t wanted = rank_of(found->second);
    int64_t& needed = down.rank() == 4 ? conv : linear;
    if (wanted > down[0]) needed = std::max(needed, wanted);
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (const Part& part : found->second) rows.emplace_back(part.place.first_row, part.place.rows);
    std::ranges::sort(rows);
    for (size_t r = 1; r < rows.size(); ++r)
      if (rows[r].first < rows[r - 1].first + rows[r - 1].second)
        problems.push_back({found->first, "two modules of the file change the same weight"});
  }
  if (problems.empty())
    for (const auto& [key, needed] : {std::pair{"network.linear", linear}, std::pair{"network.conv", conv}})
      if (needed > 0)
        fail(Code::config, "network.pretrained_lora_path: {}: its modules need rank {}: set {}: {} or more",
             path.string(), needed, key, needed);
  if (problems.empty() && parts_.empty())
    problems.push_back({path.filename().string(), "no tensor of it is part of a LoRA"});
  if (!problems.empty()) refuse(problems);
}

bool WarmStart::one_down(const std::vector<Part>& parts) const {
  const StoredTensor& first = parts[0].entry->tensor(LoraPart::down);
  const HostTensor values = file_.file->read(first.name);
  return std::ranges::all_of(parts, [&](const Part& part) {
    const StoredTensor& own = part.entry->tensor(LoraPart::down);
    return own.desc == first.desc && file_.file->read(own.name).data == values.data;
  });
}

int64_t WarmStart::rank_of(const std::vector<Part>& parts) const {
  if (one_down(parts)) return parts[0].entry->rank;
  int64_t sum = 0;
  for (const Part& part : parts) sum = checked_add(sum, part.entry->rank);
  return sum;
}

LoraModule WarmStart::started(LoraModule module, const std::vector<Part>& parts) const {
  const int64_t rank = module.down.desc.shape[0], inputs = module.down.desc.shape.with(0, 1).numel();
  const bool shared = one_down(parts);
  const auto down = module.down.as<float>(), up = module.up.as<float>();
  std::ranges::fill(up, 0.0f);
  int64_t first = 0;  // row of down
  for (const Part& part : parts) {
    const LoraEntry& entry = *part.entry;
    const HostTensor a = read_f32(file_, entry.tensor(LoraPart::down)), b = read_f32(file_, entry.tensor(LoraPart::up));
    const auto factor = static_cast<float>(entry.scale() / (module.alpha / static_cast<double>(rank)));
    std::ranges::copy(a.as<float>(), down.begin() + first * inputs);
    const LoraPlace& place = part.place;
    for (int64_t o = 0; o < place.rows; ++o) {
      const int64_t row = place.first_row + (place.swapped_halves ? (o + place.rows / 2) % place.rows : o);
      for (int64_t k = 0; k < entry.rank; ++k)
        up[static_cast<size_t>(row * rank + first + k)] =
            factor * b.as<float>()[static_cast<size_t>(o * entry.rank + k)];
    }
    if (!shared) first += entry.rank;
  }
  return module;
}

void WarmStart::apply(const Adapters& adapters) const {
  if (exact_) {
    exact_->apply(adapters);
    return said(adapters.adapted().size());
  }
  const std::vector<LoraModule> modules = adapters.modules();
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto found = parts_.find(modules[i].name);
    if (found == parts_.end()) continue;
    const LoraModule module = started(modules[i], found->second);
    const size_t first = adapters.first_tensor(i);
    adapters.upload("p", adapters.tensors()[first], module.down);
    adapters.upload("p", adapters.tensors()[first + 1], module.up);
  }
  said(modules.size());
}

void WarmStart::said(size_t trained) const {
  const size_t fresh = trained - static_cast<size_t>(modules());
  log_info("starting from {}: {} modules{}", file_.file->path().string(), modules(),
           fresh == 0 ? "" : fmt::format("; {} more are trained that it does not have: they start as new ones", fresh));
}

}  // namespace lh
