// What of the forward pass is kept for the backward pass and what is made again there, from keeping all of it to
// keeping no more than what enters and leaves each block. Between them lies a ladder of steps: each lets go of some
// memory of one block at a price in predicted time, and the steps that cost least for each byte come first.
//
// In a block, a way to keep memory is a division of a graph: every value that the backward pass reads is kept, which
// costs its bytes, or made again, which costs the time of its node, whose inputs then have to be kept or made again in
// turn. At a given price of a byte the cheapest such way is a minimum cut, so that a step may drop several values
// together, and keep another one for their sake.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "run/predict.h"

namespace lh {

// Of what the backward pass reads, in bytes by kind ("norms", "matrix products").
struct KeptActivations {
  std::map<std::string, int64_t> kept, again;
};
int64_t total(const std::map<std::string, int64_t>& kinds);

class RecomputeLadder {
 public:
  // `plan`: of the graph as it is, with all kept. Nodes from `forward_count` on are the backward pass.
  RecomputeLadder(const Graph& graph, size_t forward_count, const Plan& plan, const Rates& rates);

  // What is dropped when the first steps are taken that free at least `share` (0 to 1) of all that may be freed.
  std::set<Value> dropped(double share) const;
  KeptActivations kept(double share) const;
  int64_t freeable() const;  // bytes

 private:
  static constexpr size_t none_ = static_cast<size_t>(-1);
  // Values that lie in one memory, which are kept or dropped together.
  struct Storage {
    std::vector<Value> values;
    std::set<size_t> makers;  // nodes
    int64_t bytes = 0;
    std::string kind;
    bool needed = false;  // the backward pass reads it
    bool stays = false;   // may not be dropped
    // A piece that lies in what it is joined to for as long as that is kept, and otherwise has to have memory of its
    // own, for which it is copied twice.
    size_t whole = none_;
    double copies = 0;  // seconds
  };
  struct Block {
    std::vector<size_t> nodes;
    std::set<size_t> storages;
  };
  // A way to keep a block.
  struct Way {
    double seconds = 0;  // more than with all kept
    int64_t bytes = 0;
    std::vector<size_t> kept, again;  // storages
  };
  struct Step {
    double price;  // seconds a byte
    int64_t bytes;
    size_t block, way;
  };

  void find_storages(const Graph& graph, size_t forward_count, const Plan& plan, const Rates& rates);
  Way cheapest(const Graph& graph, const Block& block, double price) const;
  void find_between(const Graph& graph, const Block& block, const Way& more, const Way& less,
                    std::vector<Way>& ways) const;
  std::vector<const Way*> ways_at(double share) const;  // by block

  std::vector<Storage> storages_;
  std::vector<size_t> storage_of_;      // by value id; none_ where it takes no place
  std::vector<double> seconds_;         // by node
  std::map<int32_t, Block> blocks_;     // by scope
  std::vector<size_t> outside_;         // storages of no block
  std::vector<std::vector<Way>> ways_;  // by block in order of appearance
  std::vector<Step> steps_;             // as they are taken
};

}  // namespace lh
