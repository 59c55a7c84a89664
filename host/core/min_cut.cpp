// Dinic's algorithm: as long as the second side can be reached, as much flow as goes along shortest ways. What cannot
// be reached in the end is the second side.
#include "core/min_cut.h"

#include <algorithm>

namespace lh {

MinCut::Thing MinCut::add() {
  edges_.emplace_back();
  return edges_.size() - 1;
}

void MinCut::cost(Thing from, Thing to, double price) {
  if (price <= 0) return;
  edges_[from].push_back({to, price, edges_[to].size()});
  edges_[to].push_back({from, 0, edges_[from].size() - 1});
}

std::vector<size_t> MinCut::distances() const {
  std::vector<size_t> distance(edges_.size(), none_);
  std::vector<Thing> reached{first};
  distance[first] = 0;
  for (size_t i = 0; i < reached.size(); ++i)
    for (const Edge& edge : edges_[reached[i]])
      if (edge.left > 0 && distance[edge.to] == none_) {
        distance[edge.to] = distance[reached[i]] + 1;
        reached.push_back(edge.to);
      }
  return distance;
}

double MinCut::push(Thing from, double most, const std::vector<size_t>& distance, std::vector<size_t>& next) {
  if (from == second) return most;
  for (; next[from] < edges_[from].size(); ++next[from]) {
    Edge& edge = edges_[from][next[from]];
    if (edge.left <= 0 || distance[edge.to] != distance[from] + 1) continue;
    const double pushed = push(edge.to, std::min(most, edge.left), distance, next);
    if (pushed <= 0) continue;
    edge.left -= pushed;
    edges_[edge.to][edge.reverse].left += pushed;
    return pushed;
  }
  return 0;
}

std::vector<bool> MinCut::solve() {
  std::vector<size_t> distance = distances();
  for (; distance[second] != none_; distance = distances()) {
    std::vector<size_t> next(edges_.size(), 0);
    while (push(first, never, distance, next) > 0) continue;
  }
  std::vector<bool> sides(edges_.size());
  for (size_t i = 0; i < sides.size(); ++i) sides[i] = distance[i] != none_;
  return sides;
}

}  // namespace lh
