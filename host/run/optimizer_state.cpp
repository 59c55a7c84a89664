#include "run/optimizer_state.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <set>
#include <vector>

#include "core/error.h"

namespace lh {
namespace {

constexpr const char* id_key = "optimizer";
constexpr const char* revision_key = "optimizer.revision";
constexpr const char* options_key = "optimizer.options";
constexpr const char* meaning_prefix = "optimizer.meaning.";

std::string meaning_name(int32_t meaning) {
  switch (meaning) {
    case LH_MEANING_AVERAGE: return "average";
    case LH_MEANING_SQUARE_AVERAGE: return "square average";
    default: return "own";
  }
}

std::string value_of(const std::map<std::string, std::string>& facts, const std::string& key) {
  const auto found = facts.find(key);
  return found == facts.end() ? "" : found->second;
}

std::string listed(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::map<std::string, std::string> optimizer_facts(const Update& update) {
  std::map<std::string, std::string> facts;
  std::vector<std::string> options;
  for (const GroupPlan& group : update.plan().groups()) {
    facts[id_key] = group.rule->id();
    facts[revision_key] = std::to_string(group.rule->revision());
    options.push_back(fmt::format("{}: {}", group.name, group.rule->options()));
  }
  facts[options_key] = fmt::format("{}", fmt::join(options, "; "));
  for (const StoredState& stored : update.states())
    facts[meaning_prefix + stored.spec.name] = meaning_name(stored.spec.meaning);
  return facts;
}

bool load_optimizer(const std::map<std::string, HostTensor>& tensors, const std::map<std::string, std::string>& facts,
                    Update& update) {
  update.initialise();
  const std::map<std::string, std::string> own = optimizer_facts(update);
  const bool same = value_of(facts, id_key) == own.at(id_key) && value_of(facts, revision_key) == own.at(revision_key);
  std::set<std::string> kept, fresh;
  for (const StoredState& stored : update.states()) {
    const auto found = tensors.find(stored.key);
    const std::string meaning = meaning_name(stored.spec.meaning);
    const bool means_the_same =
        stored.spec.meaning != LH_MEANING_OWN && value_of(facts, meaning_prefix + stored.spec.name) == meaning;
    const bool fits = found != tensors.end() && found->second.desc == stored.desc && (same || means_the_same);
    (fits ? kept : fresh).insert(stored.spec.name);
  }
  for (const std::string& name : fresh) kept.erase(name);  // of all tensors, or of none
  for (const StoredState& stored : update.states())
    if (kept.contains(stored.spec.name)) update.upload(stored, tensors.at(stored.key));
  if (same && fresh.empty()) {
    if (value_of(facts, options_key) != own.at(options_key))
      spdlog::info("optimizer '{}' goes on with other options: {}", own.at(id_key), own.at(options_key));
    return true;
  }
  const std::string saved = value_of(facts, id_key);
  spdlog::warn(
      "the saved run has the states of optimizer '{}' (revision {}), this one is '{}' (revision {}): kept {}; "
      "begun anew: {}",
      saved.empty() ? "unknown" : saved, value_of(facts, revision_key), own.at(id_key), own.at(revision_key),
      listed(kept), listed(fresh));
  return fresh.empty();
}

}  // namespace lh
