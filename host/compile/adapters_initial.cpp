// What trained tensors begin with: numbers of a stream for each, what a rule's graph makes of the weight, its factors.

#include <algorithm>
#include <span>
#include <thread>

#include "compile/adapters.h"
#include "compile/weight_factors.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/random.h"

namespace lh {
namespace {

void fill(std::span<float> values, const InitialValue& initial, Random& random) {
  for (float& v : values) switch (initial.kind) {
      case InitialValue::Kind::zero:
      case InitialValue::Kind::graph:
      case InitialValue::Kind::singular:
      case InitialValue::Kind::qr: v = 0; break;
      case InitialValue::Kind::constant: v = static_cast<float>(initial.value); break;
      case InitialValue::Kind::uniform: v = static_cast<float>((2 * random.uniform() - 1) * initial.value); break;
      case InitialValue::Kind::normal: v = static_cast<float>(random.normal() * initial.value); break;
    }
}

bool begins_with(const AdaptedModule& module, InitialValue::Kind kind) {
  return std::ranges::any_of(module.tensors, [&](const AdaptedTensor& t) { return t.initial.kind == kind; });
}

}  // namespace

void Adapters::initialise(uint64_t seed, const BaseWeight& base) {
  const std::map<size_t, WeightFactors> factored = factors(seed, base);
  size_t i = 0;  // of tensors_
  for (size_t m = 0; m < adapted_.size(); ++m) {
    const AdaptedModule& module = adapted_[m];
    NamedTensors made = values_of_graph(module, base);
    for (size_t t = 0; t < module.tensors.size(); ++t, ++i) {
      const AdaptedTensor& tensor = module.tensors[t];
      HostTensor values(Desc{DType::f32, tensors_[i].shape});
      Random random(seed, Purpose::adapter_init, i, 0);
      if (tensor.initial.kind == InitialValue::Kind::graph)
        values = std::move(made.at(tensor.key));
      else if (const auto found = factored.find(m); found != factored.end())
        values.data = (t == 0 ? found->second.down : found->second.up).data;
      else
        fill(values.as<float>(), tensor.initial, random);
      upload("p", tensors_[i], values);
      if (module.form.from_start) upload(start_section, tensors_[i], values);
    }
  }
}

// As many at a time as there are cores, each in one thread: the numbers do not depend on how many that are.
std::map<size_t, WeightFactors> Adapters::factors(uint64_t seed, const BaseWeight& base) const {
  std::vector<size_t> wanted;
  for (size_t m = 0; m < adapted_.size(); ++m)
    if (begins_with(adapted_[m], InitialValue::Kind::singular) || begins_with(adapted_[m], InitialValue::Kind::qr))
      wanted.push_back(m);
  if (wanted.empty()) return {};
  if (!base) fail(Code::internal, "adapters begin with factors of weights, which are not at hand");
  log_info("adapters begin with factors of {} weights, which are computed now", wanted.size());
  std::map<size_t, WeightFactors> all;
  const auto at_once = static_cast<size_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  for (size_t first = 0; first < wanted.size(); first += at_once) {
    const auto part = std::span(wanted).subspan(first, std::min(at_once, wanted.size() - first));
    std::vector<HostTensor> weights;
    for (const size_t m : part) weights.push_back(base(adapted_[m].name + ".weight"));
    std::vector<WeightFactors> made(part.size());
    in_threads(static_cast<int64_t>(part.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const AdaptedModule& module = adapted_[part[i]];
        const InitialValue& initial = module.tensors[0].initial;
        const int64_t rank = tensors_[first_[part[i]]].shape[0];
        Random random(seed, Purpose::adapter_init, first_[part[i]], 0);
        made[i] =
            initial.kind == InitialValue::Kind::qr
                ? qr_factors(weights[i], rank)
                : singular_factors(weights[i], rank, module.form.scale, static_cast<int64_t>(initial.value), random);
      }
    });
    for (size_t i = 0; i < part.size(); ++i) all[part[i]] = std::move(made[i]);
  }
  return all;
}

NamedTensors Adapters::values_of_graph(const AdaptedModule& module, const BaseWeight& base) const {
  NamedTensors made;
  if (!begins_with(module, InitialValue::Kind::graph)) return made;
  if (!base)
    fail(Code::internal, "{}: its adapter begins with what the weight says, which is not at hand", module.name);
  OwnedProgram program(*device_, module.rule->initial_values(module.layer), {}, "first values of adapters");
  if (program->graph().inputs.contains("weight")) program->set_input("weight", base(module.name + ".weight"));
  program->run();
  for (const auto& [key, value] : program->graph().outputs) made[key] = program->output(key);
  return made;
}

}  // namespace lh
