// What follows from gather() alone.
#include "world/world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace lh {
namespace {

class Alone final : public World {
 public:
  void exchange(const std::shared_ptr<Parcel>& parcel, double) override { parcel->in.data = parcel->out.data; }
};

// "ranks 0 and 2 have X, rank 1 has Y"
std::string who_has_what(const std::vector<nlohmann::json>& all, const std::string& key) {
  std::map<std::string, std::vector<size_t>> by_value;
  for (size_t r = 0; r < all.size(); ++r) by_value[all[r].value(key, std::string("(none)"))].push_back(r);
  if (by_value.size() == 1) return "";
  std::vector<std::pair<size_t, std::string>> parts;  // in the order of ranks
  for (const auto& [value, ranks] : by_value) {
    std::string who = ranks.size() == 1 ? "rank " : "ranks ";
    constexpr size_t most = 4;
    for (size_t i = 0; i < std::min(ranks.size(), most); ++i)
      who += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > most) who += fmt::format(" and {} more", ranks.size() - most);
    parts.emplace_back(ranks[0], fmt::format("{} {} {}", who, ranks.size() == 1 ? "has" : "have", value));
  }
  std::ranges::sort(parts);
  std::string text;
  for (const auto& [rank, part] : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

}  // namespace

World& World::alone() {
  static Alone one;
  return one;
}

std::string World::name(int rank) const { return fmt::format("rank {}", rank); }

std::string World::of_first(const std::string& text) { return gather(first() ? text : std::string()).front(); }

bool World::any(bool mine) {
  for (const std::string& one : gather(mine ? "y" : ""))
    if (!one.empty()) return true;
  return false;
}

void require_same(World& world, const std::map<std::string, std::string>& facts) {
  std::vector<nlohmann::json> all;
  std::set<std::string> keys;
  for (const std::string& text :
       world.gather(nlohmann::json(facts).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))) {
    all.push_back(nlohmann::json::parse(text));
    for (const auto& item : all.back().items()) keys.insert(item.key());
  }
  std::string differences;
  for (const std::string& key : keys)
    if (const std::string what = who_has_what(all, key); !what.empty())
      differences += fmt::format("\n  {}: {}", key, what);
  if (!differences.empty())
    fail(
        Code::config,
        "the processes of this run are not alike, they would not train the same:{}\nGive all of them the same program, "
        "plugins, configuration, files and libraries",
        differences);
}

void require_same_weights(World& world, const std::string& digest, int64_t step) {
  const std::vector<std::string> all = world.gather(digest);
  if (std::ranges::all_of(all, [&](const std::string& one) { return one == all.front(); })) return;
  std::map<std::string, int64_t> counts;
  for (const std::string& one : all) ++counts[one];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  const bool majority = 2 * most->second > static_cast<int64_t>(all.size());
  std::vector<std::string> names;
  for (size_t r = 0; r < all.size(); ++r)
    if (!majority || all[r] != most->first) names.push_back(world.name(static_cast<int>(r)));
  fail(ranks_differ,
       "after step {}: {} {}. Nothing of that was saved, and the last checkpoint is untouched: continue with --resume. "
       "Where it comes back, a device or its memory is failing",
       step, fmt::join(names, ", "),
       majority ? "has other weights than most processes of the run" : "have different weights");
}

}  // namespace lh
