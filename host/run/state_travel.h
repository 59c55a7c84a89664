// Optimizer states that are kept in host memory come to a window on the device for their part of an update and go back
// behind it, beside the parts before and after:
//
//   transfer queue   there 0 | there 1 | there 2 | ...
//   compute queue              update 0 | update 1 | ...
//   return queue                          back 0 | back 1 | ...
//
// The window has two places, each as large as the largest part. A part that comes again before others need its place
// stays there.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lh {

enum class StatePlace { device, host };  // where the states of tensors are between two updates

// A graph over the tensors of a block, one after another: the states that it reads or writes.
struct StateVisit {
  size_t block = 0;
  std::set<std::string> used, written;
};

// From a block's way there to its way back: visits `first` to `last`, others between them.
struct StateStay {
  size_t block = 0, place = 0, first = 0, last = 0;
  std::set<std::string> used, written;  // there go those that are used, back those that are written
  size_t fetched_before = 0;            // this visit the way there may begin: then its place is no longer in use
  std::optional<size_t> place_before;   // the stay that had the place
  std::optional<size_t> block_before;   // the stay whose way back brings what is fetched
};

struct StateTravel {
  std::vector<StateStay> stays;                // in the order of their first visits, which is that of the ways there
  std::vector<std::optional<size_t>> stay_of;  // by visit; none: without states
};

// places: 1 where there is one block only, else 2.
StateTravel plan_travel(const std::vector<StateVisit>& visits, size_t places);

}  // namespace lh
