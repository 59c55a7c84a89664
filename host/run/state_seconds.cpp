// Goes through the visits of a step as Update does, with a clock for the operations and one for each way of the link.
#include "run/state_seconds.h"

#include <algorithm>

namespace lh {
namespace {

int64_t bytes_of(const UpdateBlock& block, const std::set<std::string>& states) {
  int64_t bytes = 0;
  for (const std::string& state : states) bytes += block.state_bytes.at(state);
  return bytes;
}

}  // namespace

double state_seconds(const UpdatePlan& update, const Rates& rates) {
  const std::vector<StateStay>& stays = update.step_travel().stays;
  double now = 0, computing = 0, there_free = 0, back_free = 0;
  std::vector<double> there(stays.size()), back(stays.size());
  size_t begun = 0, visit = 0;
  const auto sent = [&](const StateStay& stay, const std::set<std::string>& states) {
    return link_seconds(bytes_of(update.blocks()[stay.block], states), rates);
  };
  const auto visits = [&](const UpdateBlock& block, size_t pass) {
    for (; begun < stays.size() && stays[begun].fetched_before <= visit; ++begun) {
      const StateStay& stay = stays[begun];
      there_free = std::max(there_free, now);
      for (const std::optional<size_t>& other : {stay.place_before, stay.block_before})
        if (other) there_free = std::max(there_free, back[*other]);
      there[begun] = there_free += sent(stay, stay.used);
    }
    const double takes = predict(block.passes[pass].graph, block.passes[pass].plan, rates).seconds;
    const std::optional<size_t> number = update.step_travel().stay_of[visit];
    if (number) now = std::max(now, there[*number]);
    now += takes;
    computing += takes;
    if (number && stays[*number].last == visit)
      back[*number] = back_free = std::max(back_free, now) + sent(stays[*number], stays[*number].written);
    ++visit;
  };
  if (update.place() == StatePlace::device) return 0;
  for (size_t group = 0; group < update.groups().size(); ++group)
    for (size_t pass = 0; pass < update.groups()[group].between.size(); ++pass)
      for (const UpdateBlock& block : update.blocks())
        if (block.group == group) visits(block, pass);
  return std::max(now, back_free) - computing;
}

}  // namespace lh
