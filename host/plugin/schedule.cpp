#include "plugin/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lh {
namespace {

void check_list(const Call& call, const LevelList& list, const lh_schedule_facts& facts) {
  const bool flow = std::string_view(facts.objective) == "flow";
  const double untouched = facts.trained_sigma[facts.timesteps - 1];  // may be infinite
  for (size_t i = 0; i < list.sigma.size(); ++i) {
    const double sigma = list.sigma[i];
    if (!(sigma >= 0) || (!std::isfinite(sigma) && (i > 0 || sigma != untouched)))
      call.wrong(fmt::format("gave sigma {} at level {}", sigma, i));
    if (flow && sigma > 1 + 1e-9)
      call.wrong(fmt::format("gave sigma {} at level {}; a flow model's go up to 1", sigma, i));
    if (i > 0 && sigma >= list.sigma[i - 1])
      call.wrong(fmt::format("gave sigma {} at level {} after {}; levels must fall", sigma, i, list.sigma[i - 1]));
    if (list.time[i] < 0 || list.time[i] > facts.timesteps - 1.0)
      call.wrong(fmt::format("gave time {} at level {}, expected 0 to {}", list.time[i], i, facts.timesteps - 1));
  }
  if (!std::isfinite(list.start) || list.start < 0) call.wrong(fmt::format("gave start {}", list.start));
}

}  // namespace

LevelList Schedule::levels(const lh_schedule_facts& facts) const {
  const uint32_t room = std::max(2 * facts.steps, facts.timesteps) + 64;
  const double unset = std::numeric_limits<double>::quiet_NaN();
  LevelList list{std::vector<double>(room, unset), std::vector<double>(room, unset)};
  lh_schedule_levels out{sizeof out, room, 0, list.sigma.data(), list.time.data(), 0};
  Call call = part_.call("levels");
  const lh_status status = call.run([&] { return part_->levels(part_.self(), &facts, &out); });
  if (status == LH_E_SETTING && call.said_status() != LH_OK)
    fail(Code::config, "sample.scheduler: schedule '{}': {}", id(), call.reason());
  call.check(status);
  if (out.count < 2 || out.count > room) call.wrong(fmt::format("gave {} levels, expected 2 to {}", out.count, room));
  list.sigma.resize(out.count);
  list.time.resize(out.count);
  list.start = out.start;
  check_list(call, list, facts);
  return list;
}

}  // namespace lh
