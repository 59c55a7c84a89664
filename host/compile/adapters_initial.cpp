// What trained tensors begin with: zeros, numbers of a stream for each, what a rule's graph makes of the weight, its
// factors.
#include <algorithm>
#include <span>
#include <thread>

#include "compile/adapters.h"
#include "compile/initial_numbers.h"
#include "compile/weight_factors.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/random.h"
#include "graph/fingerprint.h"

namespace lh {
namespace {

using Kind = InitialValue::Kind;

bool begins_with(const AdaptedModule& module, Kind kind) {
  return std::ranges::any_of(module.tensors, [&](const AdaptedTensor& t) { return t.initial.kind == kind; });
}

bool same_in_both_orders(const AdapterTensor& tensor) {
  const Shape& s = tensor.shape;
  return !tensor.channels_last || s[1] == 1 || s[2] * s[3] == 1;
}

}  // namespace

void Adapters::initialise(uint64_t seed, const BaseWeight& base) {
  memory("p").clear();
  begin_as_factors(seed, base);
  begin_as_graphs(base);
  begin_as_numbers(seed);
  for (size_t m = 0; m < adapted_.size(); ++m)
    for (size_t t = 0; adapted_[m].form.from_start && t < adapted_[m].tensors.size(); ++t) {
      const AdapterTensor& tensor = tensors_[first_[m] + t];
      device_->check(
          lk_copy_async(device_->context(), LK_COMPUTE, at(start_section, tensor), at("p", tensor), tensor.bytes()),
          tensor.name);
    }
}

// As many at a time as there are cores, each in one thread: the numbers do not depend on how many that are.
void Adapters::begin_as_factors(uint64_t seed, const BaseWeight& base) const {
  std::vector<size_t> wanted;
  for (size_t m = 0; m < adapted_.size(); ++m)
    if (begins_with(adapted_[m], Kind::singular) || begins_with(adapted_[m], Kind::qr)) wanted.push_back(m);
  if (wanted.empty()) return;
  if (!base) fail(Code::internal, "adapters begin with factors of weights, which are not at hand");
  log_info("adapters begin with factors of {} weights, which are computed now", wanted.size());
  const auto at_once = static_cast<size_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  for (size_t first = 0; first < wanted.size(); first += at_once) {
    const auto part = std::span(wanted).subspan(first, std::min(at_once, wanted.size() - first));
    std::vector<HostTensor> weights;
    for (const size_t m : part) weights.push_back(base.read(adapted_[m].name + ".weight"));
    std::vector<WeightFactors> made(part.size());
    in_threads(static_cast<int64_t>(part.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const AdaptedModule& module = adapted_[part[i]];
        const InitialValue& initial = module.tensors[0].initial;
        const int64_t rank = tensors_[first_[part[i]]].shape[0];
        Random random(seed, Purpose::adapter_init, first_[part[i]], 0);
        made[i] = initial.kind == Kind::qr ? qr_factors(weights[i], rank)
                                           : singular_factors(weights[i], rank, module.form.scale,
                                                              static_cast<int64_t>(initial.value), random);
      }
    });
    for (size_t i = 0; i < part.size(); ++i) {
      const size_t down = first_[part[i]], up = down + 1;
      for (const auto& [tensor, factor] : {std::pair{down, &made[i].down}, std::pair{up, &made[i].up}}) {
        factor->desc.shape = tensors_[tensor].shape;  // of a convolution they have its axes
        upload("p", tensors_[tensor], *factor);
      }
    }
  }
}

// On the device all the way where the weight is there. Modules whose graphs are alike come one after the other and
// share a program, of which there is one at a time.
void Adapters::begin_as_graphs(const BaseWeight& base) const {
  std::vector<size_t> wanted;
  for (size_t m = 0; m < adapted_.size(); ++m)
    if (begins_with(adapted_[m], Kind::graph)) wanted.push_back(m);
  std::ranges::stable_sort(wanted, {}, [&](size_t m) {
    const std::span<const int64_t> dims = adapted_[m].layer.weight.dims();
    return std::vector<int64_t>(dims.begin(), dims.end());
  });
  OwnedProgram program;
  std::string programmed;
  for (const size_t m : wanted) {
    const AdaptedModule& module = adapted_[m];
    if (!base)
      fail(Code::internal, "{}: its adapter begins with what the weight says, which is not at hand", module.name);
    Graph graph = module.rule->initial_values(module.layer);
    if (std::string own = fingerprint(graph); own != programmed) {
      program = {};  // its memory first
      program = OwnedProgram(*device_, std::move(graph), {}, "first values of adapters");
      programmed = std::move(own);
    }
    if (const auto input = program->graph().inputs.find("weight"); input != program->graph().inputs.end()) {
      if (base.put)
        base.put(module.name + ".weight", program->tensor(input->second));
      else
        program->set_input("weight", base.read(module.name + ".weight"));
    }
    program->run();
    for (size_t t = 0; t < module.tensors.size(); ++t)
      if (module.tensors[t].initial.kind == Kind::graph) take(tensors_[first_[m] + t], *program, module.tensors[t].key);
  }
  if (!wanted.empty()) device_->synchronize();  // the program goes away
}

void Adapters::take(const AdapterTensor& tensor, const Program& program, const std::string& output) const {
  if (!same_in_both_orders(tensor)) return upload("p", tensor, program.output(output));
  const lk_tensor made = program.tensor(program.graph().outputs.at(output));
  device_->check(lk_copy_async(device_->context(), LK_COMPUTE, at("p", tensor), made.data, tensor.bytes()),
                 tensor.name);
}

void Adapters::begin_as_numbers(uint64_t seed) const {
  std::vector<NumberStream> streams;
  for (size_t m = 0; m < adapted_.size(); ++m)
    for (size_t t = 0; t < adapted_[m].tensors.size(); ++t) {
      const size_t number = first_[m] + t;
      const AdapterTensor& tensor = tensors_[number];
      const InitialValue& initial = adapted_[m].tensors[t].initial;
      if (initial.kind == Kind::constant)
        memory("p").fill(tensor.offset * 4, {DType::f32, tensor.shape}, initial.value);
      else if (initial.kind == Kind::uniform || initial.kind == Kind::normal)
        streams.push_back({number, tensor.shape, initial});
    }
  make_numbers(seed, streams, [&](size_t number, const HostTensor& values) { upload("p", tensors_[number], values); });
}

}  // namespace lh
