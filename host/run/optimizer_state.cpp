#include "run/optimizer_state.h"

#include <fmt/ranges.h>

#include <memory>
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

OptimizerValues optimizer_values(const Update& update) {
  OptimizerValues values{.states = {}, .read = {}, .facts = optimizer_facts(update)};
  const auto tensors = std::make_shared<NamedTensors>();
  for (const StoredState& stored : update.states()) {
    values.states[stored.key] = stored.desc;
    (*tensors)[stored.key] = update.download(stored);
  }
  values.read = [tensors](const std::string& key) { return tensors->at(key); };
  return values;
}

TakeOver load_optimizer(const OptimizerValues& values, Update& update) {
  update.initialise();
  const std::map<std::string, std::string> own = optimizer_facts(update);
  TakeOver result{.from = value_of(values.facts, id_key), .to = own.at(id_key)};
  result.same_rule = result.from == result.to && value_of(values.facts, revision_key) == own.at(revision_key);
  result.same_options = value_of(values.facts, options_key) == own.at(options_key);
  for (const StoredState& stored : update.states()) {
    const auto found = values.states.find(stored.key);
    const bool means_the_same =
        stored.spec.meaning != LH_MEANING_OWN &&
        value_of(values.facts, meaning_prefix + stored.spec.name) == meaning_name(stored.spec.meaning);
    const bool fits =
        found != values.states.end() && found->second == stored.desc && (result.same_rule || means_the_same);
    (fits ? result.kept : result.fresh).insert(stored.spec.name);
  }
  for (const std::string& name : result.fresh) result.kept.erase(name);  // of all tensors, or of none
  for (const StoredState& stored : update.states())
    if (result.kept.contains(stored.spec.name)) update.upload(stored, values.read(stored.key));
  return result;
}

std::string TakeOver::text() const {
  if (same_rule && all_kept())
    return fmt::format("optimizer '{}' goes on{}", to, same_options ? "" : " with other options");
  const std::string before =
      from.empty() ? "an unknown one" : fmt::format("{}'{}'", from == to ? "another revision of " : "", from);
  return fmt::format("optimizer '{}' takes over from {}: kept {}; begun anew: {}", to, before, listed(kept),
                     listed(fresh));
}

}  // namespace lh
