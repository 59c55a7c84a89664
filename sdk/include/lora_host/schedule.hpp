// Schedules as C++ classes: the facts with what is often computed from them, the class, and the descriptor made of it.
//
//   class Karras : public lora_host::Schedule { ... };
//   constinit const lh_schedule karras = lora_host::schedule<Karras>(
//       {.id = "karras", .aliases = aliases, .objectives = objectives, .options = options});
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lora_host/border.hpp"
#include "lora_host/options.hpp"
#include "lora_host/schedule.h"
#include "lora_host/weights.hpp"

namespace lora_host {

// lh_schedule_facts, and what follows from them.
struct Facts : lh_schedule_facts {
  explicit Facts(const lh_schedule_facts& facts) : lh_schedule_facts(facts) {}

  bool flow() const { return std::string_view(objective) == "flow"; }
  // The model's shift of a time of a flow model.
  double shifted(double t) const {
    return dynamic != 0 ? std::exp(mu) / (std::exp(mu) + 1 / t - 1) : shift * t / (1 + (shift - 1) * t);
  }
  // Sigma of a training timestep, between whole ones where log(sigma) lies between theirs.
  double sigma_at(double t) const {
    const auto low = std::min(static_cast<uint32_t>(t), timesteps - 1), high = std::min(low + 1, timesteps - 1);
    const double part = t - low, above = std::isinf(trained_sigma[high]) ? sigma_max : trained_sigma[high];
    return std::exp((1 - part) * std::log(trained_sigma[low]) + part * std::log(above));
  }
  // The training timestep of a sigma, between whole ones where log(sigma) lies between theirs; the ends are not
  // exceeded.
  double time_at(double sigma) const {
    const double* const end = trained_sigma + timesteps;
    const double* const above = std::lower_bound(trained_sigma, end, sigma);
    if (above == trained_sigma) return 0;
    if (above == end) return timesteps - 1.0;
    const double low = std::log(above[-1]), high = std::log(std::isinf(*above) ? sigma_max : *above);
    return static_cast<double>(above - trained_sigma - 1) + (std::log(sigma) - low) / (high - low);
  }
};

// What a schedule answers with.
struct Levels {
  std::vector<double> sigma;      // falling, the end among them
  std::vector<double> time = {};  // one for each sigma, or none: found by the host
  double start = 0;               // 0: the host's
};

// Constructed from Options. It does not change.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual Levels levels(const Facts& facts) const = 0;
};

struct ScheduleTraits {
  const char* id;
  const char* const* aliases = nullptr;  // lists end with nullptr
  const char* const* objectives;
  const lh_option* options = nullptr;
};

inline void give_levels(const Levels& found, lh_schedule_levels& out) {
  if (found.sigma.size() > out.room)
    throw Failure(LH_E_INVALID,
                  std::to_string(found.sigma.size()) + " levels, there is room for " + std::to_string(out.room));
  if (!found.time.empty() && found.time.size() != found.sigma.size())
    throw Failure(LH_E_INVALID,
                  std::to_string(found.time.size()) + " times for " + std::to_string(found.sigma.size()) + " levels");
  std::copy(found.sigma.begin(), found.sigma.end(), out.sigma);
  std::copy(found.time.begin(), found.time.end(), out.time);
  out.count = static_cast<uint32_t>(found.sigma.size());
  out.start = found.start;
}

template <typename T>
constexpr lh_schedule schedule(const ScheduleTraits& traits) {
  lh_schedule out{};
  out.struct_size = sizeof(lh_schedule);
  out.id = traits.id;
  out.aliases = traits.aliases;
  out.objectives = traits.objectives;
  out.options = traits.options;
  out.create = [](const lh_host* host, const lh_attr* options, uint32_t count, void** self) noexcept {
    return guarded(*host->api, [&] {
      *self = new Held<Schedule>{host->api, std::make_unique<T>(Options(options, count))};
    });
  };
  out.destroy = [](void* self) noexcept { delete &Held<Schedule>::of(self); };
  out.levels = [](void* self, const lh_schedule_facts* facts, lh_schedule_levels* levels) noexcept {
    return guarded(*Held<Schedule>::of(self).api,
                   [&] { give_levels(Held<Schedule>::of(self).object->levels(Facts(*facts)), *levels); });
  };
  return out;
}

}  // namespace lora_host
