// The place that was used the longest time ago is given to the block that comes.
#include "run/state_travel.h"

#include <algorithm>
#include <map>

namespace lh {

StateTravel plan_travel(const std::vector<StateVisit>& visits, size_t places) {
  StateTravel travel;
  std::vector<std::optional<size_t>> there(places);  // by place: the last stay
  std::map<size_t, size_t> stay_of_block;            // the last one
  for (size_t v = 0; v < visits.size(); ++v) {
    const StateVisit& visit = visits[v];
    travel.stay_of.emplace_back();
    if (visit.used.empty()) continue;
    const auto before = stay_of_block.find(visit.block);
    const bool stays = before != stay_of_block.end() && there[travel.stays[before->second].place] == before->second;
    if (!stays) {
      const auto oldest = std::ranges::min_element(
          there, {}, [&](const std::optional<size_t>& stay) { return stay ? travel.stays[*stay].last + 1 : 0; });
      StateStay stay{.block = visit.block, .place = static_cast<size_t>(oldest - there.begin()), .first = v};
      stay.place_before = *oldest;
      if (before != stay_of_block.end()) stay.block_before = before->second;
      stay.fetched_before = travel.stays.empty() ? 0 : travel.stays.back().first;
      if (*oldest) stay.fetched_before = std::max(stay.fetched_before, travel.stays[**oldest].last + 1);
      stay_of_block[visit.block] = travel.stays.size();
      *oldest = travel.stays.size();
      travel.stays.push_back(std::move(stay));
    }
    const size_t number = stay_of_block.at(visit.block);
    StateStay& stay = travel.stays[number];
    stay.last = v;
    stay.used.insert(visit.used.begin(), visit.used.end());
    stay.written.insert(visit.written.begin(), visit.written.end());
    travel.stay_of.back() = number;
  }
  return travel;
}

}  // namespace lh
