// The ways of an update's states between host memory and the window, beside its operations.
#include "run/update.h"

namespace lh {

Update::Ways Update::ways_of(const StateTravel& travel) {
  Ways ways{.travel = &travel};
  for (size_t i = 0; i < travel.stays.size(); ++i) ways.ways.push_back(std::make_unique<Way>(device_));
  return ways;
}

void Update::send(const StateStay& stay, const std::set<std::string>& states, lk_queue queue) {
  const UpdateBlock& block = plan_.blocks()[stay.block];
  std::byte* const place = memory_.arena + plan_.window_place(stay.place);
  for (const std::string& state : states) {
    std::byte *const kept = states_.data() + block.state_offsets.at(state), *const here =
                                                                                place + block.in_window.at(state);
    const bool there = queue == LK_TRANSFER;
    device_.check(
        lk_copy_async(device_.context(), queue, there ? here : kept, there ? kept : here, block.state_bytes.at(state)),
        "optimizer states");
  }
}

// What the compute queue was given before comes before: the arena is in use until then, and so is the place.
void Update::bring(const StateStay& stay, Way& way, const Ways& ways) {
  way.ready.record(LK_COMPUTE);
  way.ready.hold(LK_TRANSFER);
  for (const std::optional<size_t>& other : {stay.place_before, stay.block_before})
    if (other && !ways.travel->stays[*other].written.empty()) ways.ways[*other]->back.hold(LK_TRANSFER);
  send(stay, stay.used, LK_TRANSFER);
  way.there.record(LK_TRANSFER);
}

void Update::before(Ways& ways, size_t visit) {
  const std::vector<StateStay>& stays = ways.travel->stays;
  for (; ways.begun < stays.size() && stays[ways.begun].fetched_before <= visit; ++ways.begun)
    bring(stays[ways.begun], *ways.ways[ways.begun], ways);
  const std::optional<size_t> number = ways.travel->stay_of[visit];
  if (number && stays[*number].first == visit) ways.ways[*number]->there.hold(LK_COMPUTE);
}

void Update::after(Ways& ways, size_t visit) {
  const std::optional<size_t> number = ways.travel->stay_of[visit];
  if (!number || ways.travel->stays[*number].last != visit || ways.travel->stays[*number].written.empty()) return;
  Way& way = *ways.ways[*number];
  way.done.record(LK_COMPUTE);
  way.done.hold(LK_RETURN);
  send(ways.travel->stays[*number], ways.travel->stays[*number].written, LK_RETURN);
  way.back.record(LK_RETURN);
}

// The queue keeps the order, so that the last is back behind all others. What comes next may use the arena.
void Update::finish(Ways& ways) {
  const std::vector<StateStay>& stays = ways.travel->stays;
  const Way* last = nullptr;
  size_t end = 0;
  for (size_t i = 0; i < stays.size(); ++i)
    if (!stays[i].written.empty() && stays[i].last >= end) end = stays[i].last, last = ways.ways[i].get();
  if (last != nullptr) last->back.hold(LK_COMPUTE);
}

}  // namespace lh
