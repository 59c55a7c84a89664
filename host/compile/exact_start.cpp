#include "compile/exact_start.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"

namespace lh {
namespace {

constexpr const char* alpha_key = "alpha";

// {number among Adapters::adapted, key} of a name in the file; nothing where the run has no such tensor.
struct Match {
  size_t module;
  std::string key;
};
std::optional<Match> match(const std::string& name, const LoraNameTable& names, const Adapters& adapters) {
  const std::vector<AdaptedModule>& adapted = adapters.adapted();
  for (size_t m = 0; m < adapted.size(); ++m) {
    std::vector<std::string> keys{alpha_key};
    for (const AdaptedTensor& tensor : adapted[m].tensors) keys.push_back(tensor.key);
    for (const std::string& key : keys) {
      if (!name.ends_with("." + key)) continue;
      const LoraPlace* place = names.find(name.substr(0, name.size() - key.size() - 1));
      if (place != nullptr && place->whole && !place->swapped_halves && place->module == adapted[m].name)
        return Match{m, key};
    }
  }
  return std::nullopt;
}

}  // namespace

ExactStart::ExactStart(const LoraFile& file, const LoraNameTable& names, const Adapters& adapters,
                       std::vector<LoraProblem>& problems)
    : file_(file) {
  std::map<size_t, size_t> found;  // tensors of each module
  for (const StoredTensor& stored : file.file->tensors()) {
    const auto at = match(stored.name, names, adapters);
    if (!at) {
      problems.push_back(
          {stored.name, "this run trains no such tensor: set network.type and its options as they were"});
      continue;
    }
    const AdaptedModule& module = adapters.adapted()[at->module];
    if (at->key == alpha_key) {
      const double alpha = stored.desc.shape.numel() == 1 ? read_f32(file, stored).as<float>()[0] : NAN;
      if (module.alpha != 0 && !(std::abs(alpha - module.alpha) <= 1e-3 * std::abs(module.alpha)))
        problems.push_back({stored.name, fmt::format("alpha is {}, this run's is {}: set network.linear_alpha or "
                                                     "network.module_alphas",
                                                     alpha, module.alpha)});
      continue;
    }
    const auto key = std::ranges::find(module.tensors, at->key, &AdaptedTensor::key);
    const size_t number = adapters.first_tensor(at->module) + static_cast<size_t>(key - module.tensors.begin());
    if (stored.desc.shape != adapters.tensors()[number].shape) {
      problems.push_back({stored.name, fmt::format("it is {}, this run's is {}: set the rank and the adapter's options "
                                                   "as they were",
                                                   stored.desc.shape.text(), adapters.tensors()[number].shape.text())});
      continue;
    }
    stored_[number] = &stored;
    ++found[at->module];
  }
  for (const auto& [number, count] : found) {
    const AdaptedModule& module = adapters.adapted()[number];
    if (count != module.tensors.size())
      problems.push_back({module.name, fmt::format("the file has {} of its {} tensors", count, module.tensors.size())});
  }
  modules_ = found.size();
}

void ExactStart::apply(const Adapters& adapters) const {
  for (const auto& [number, stored] : stored_)
    adapters.upload("p", adapters.tensors()[number], read_f32(file_, *stored));
}

}  // namespace lh
