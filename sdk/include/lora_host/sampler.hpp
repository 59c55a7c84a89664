// Samplers as C++ classes: a step as a sampler sees it, the class, and the descriptor made of it.
//
//   class Euler : public lora_host::Sampler { ... };
//   constinit const lh_sampler euler = lora_host::sampler<Euler>(
//       {.id = "euler", .aliases = aliases, .objectives = objectives, .space = LH_SPACE_SIGMA, .options = options});
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lora_host/border.hpp"
#include "lora_host/graph.hpp"
#include "lora_host/options.hpp"
#include "lora_host/sampler.h"

namespace lora_host {

// A step of a run: the levels that it begins and ends at, and those around it.
class Step {
 public:
  Step(const lh_levels& levels, uint32_t index) : levels_(levels), index_(index) {}

  uint32_t index() const { return index_; }
  uint32_t count() const { return levels_.steps; }
  bool first() const { return index_ == 0; }
  bool last() const { return index_ + 1 == levels_.steps; }
  bool flow() const { return std::string_view(levels_.objective) == "flow"; }

  double alpha() const { return levels_.alpha[index_]; }
  double sigma() const { return levels_.sigma[index_]; }
  double time() const { return levels_.time[index_]; }
  double lambda() const { return std::log(alpha() / sigma()); }  // infinite where sigma is 0

  Step next() const { return Step(levels_, index_ + 1); }  // its level is the end of this step
  Step previous(uint32_t steps = 1) const { return Step(levels_, index_ - steps); }  // no more than index() steps

  // Between levels, in the space of the sampler.
  double alpha_at(double at_sigma) const {
    if (flow()) return 1 - at_sigma;
    return levels_.space == LH_SPACE_SIGMA ? 1 : std::sqrt(1 - at_sigma * at_sigma);
  }
  double sigma_at_lambda(double lambda) const {
    if (flow()) return 1 / (1 + std::exp(lambda));
    return levels_.space == LH_SPACE_SIGMA ? std::exp(-lambda) : 1 / std::sqrt(1 + std::exp(2 * lambda));
  }

 private:
  const lh_levels& levels_;
  uint32_t index_;
};

// An integrator: constructed from Options. It does not change, and each function depends on its arguments alone.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual uint32_t stages() const { return 1; }
  virtual std::vector<std::string> carried() const { return {}; }  // tensors kept until the run ends
  virtual std::vector<std::string> scalars() const { return {}; }  // numbers that change with step or stage
  // One for each of `scalars`.
  virtual std::vector<double> scalar_values(const Step& /*step*/, uint32_t /*stage*/) const { return {}; }
  // Where a stage sees the model; 0: the step ends without it; LH_STAGE_WITHOUT_MODEL.
  virtual double stage_sigma(const Step& step, uint32_t /*stage*/) const { return step.sigma(); }
  virtual void build(Graph& g, uint32_t stage, const Dims& latents) const = 0;
};

struct SamplerTraits {
  const char* id;
  const char* const* aliases = nullptr;  // lists end with nullptr
  const char* const* objectives;
  int32_t space;
  const lh_option* options = nullptr;
};

// A sampler with its lists, whose texts live as long as it does.
struct ListedSampler {
  explicit ListedSampler(std::unique_ptr<Sampler> sampler)
      : of(std::move(sampler)), carried_names(of->carried()), scalar_names(of->scalars()) {}
  static const char* name(const std::vector<std::string>& names, uint32_t index) {
    return index < names.size() ? names[index].c_str() : nullptr;
  }
  std::unique_ptr<Sampler> of;
  std::vector<std::string> carried_names, scalar_names;
};

template <typename T>
constexpr lh_sampler sampler(const SamplerTraits& traits) {
  using Self = Held<ListedSampler>;
  lh_sampler out{};
  out.struct_size = sizeof(lh_sampler);
  out.id = traits.id;
  out.aliases = traits.aliases;
  out.objectives = traits.objectives;
  out.space = traits.space;
  out.options = traits.options;
  out.create = [](const lh_host* host, const lh_attr* options, uint32_t count, void** self) noexcept {
    return guarded(*host->api, [&] {
      auto listed = std::make_unique<ListedSampler>(std::make_unique<T>(Options(options, count)));
      *self = new Self{host->api, std::move(listed)};
    });
  };
  out.destroy = [](void* self) noexcept { delete &Self::of(self); };
  out.stages = [](void* self) noexcept -> uint32_t {
    uint32_t stages = 0;
    (void)guarded(*Self::of(self).api, [&] { stages = Self::of(self).object->of->stages(); });
    return stages;
  };
  out.carried = [](void* self, uint32_t index) noexcept {
    return ListedSampler::name(Self::of(self).object->carried_names, index);
  };
  out.scalar = [](void* self, uint32_t index) noexcept {
    return ListedSampler::name(Self::of(self).object->scalar_names, index);
  };
  out.scalar_values = [](void* self, const lh_levels* levels, uint32_t step, uint32_t stage, double* values) noexcept {
    return guarded(*Self::of(self).api, [&] {
      const ListedSampler& listed = *Self::of(self).object;
      const std::vector<double> found = listed.of->scalar_values(Step(*levels, step), stage);
      if (found.size() != listed.scalar_names.size())
        throw Failure(LH_E_INVALID, "scalar_values gives " + std::to_string(found.size()) + " numbers for " +
                                        std::to_string(listed.scalar_names.size()) + " scalars");
      std::copy(found.begin(), found.end(), values);
    });
  };
  out.stage_sigma = [](void* self, const lh_levels* levels, uint32_t step, uint32_t stage, double* sigma) noexcept {
    return guarded(*Self::of(self).api,
                   [&] { *sigma = Self::of(self).object->of->stage_sigma(Step(*levels, step), stage); });
  };
  out.build_stage = [](void* self, lh_graph* graph, uint32_t stage, const lh_desc* latents) noexcept {
    return guarded(*graph->api, [&] {
      Graph g(graph);
      Self::of(self).object->of->build(g, stage, dims_of(*latents));
    });
  };
  return out;
}

}  // namespace lora_host
