#include "diffusion/sampler_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "config/nearest.h"
#include "core/error.h"

namespace lh {
namespace {

// "DPM++ 2M Karras" -> "dpmpp_2m_karras"
std::string plain(std::string_view spelling) {
  std::string out;
  for (const char c : spelling) {
    if (c == '+')
      out += 'p';
    else if (c == ' ' || c == '-')
      out += '_';
    else
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::vector<std::string> texts(const char* const* list) {
  std::vector<std::string> out;
  for (; list != nullptr && *list != nullptr; ++list) out.emplace_back(*list);
  return out;
}

template <typename Descriptor>
bool fits(const Descriptor& descriptor, Objective objective) {
  const std::vector<std::string> names = texts(descriptor.objectives);
  return std::ranges::find(names, objective_name(objective)) != names.end();
}

// By id before aliases, whatever the order of the plugins.
template <typename Descriptor>
const Offered<Descriptor>* find(const std::vector<Offered<Descriptor>>& all, const std::string& name) {
  for (const auto& offered : all)
    if (plain(offered.descriptor->id) == name) return &offered;
  for (const auto& offered : all)
    for (const std::string& alias : texts(offered.descriptor->aliases))
      if (plain(alias) == name) return &offered;
  return nullptr;
}

template <typename Descriptor>
std::vector<std::string> ids_for(const std::vector<Offered<Descriptor>>& all, Objective objective) {
  std::vector<std::string> ids;
  for (const auto& offered : all)
    if (fits(*offered.descriptor, objective)) ids.emplace_back(offered.descriptor->id);
  return ids;
}

// what: "sampler" or "schedule"; ids: those that are of use.
std::string unknown_name(const std::string& what, const std::string& name, const std::vector<std::string>& ids) {
  const std::vector<std::string_view> words(ids.begin(), ids.end());
  const std::string near = nearest_of(plain(name), words);
  return fmt::format("{} '{}' is in no plugin. {}Known: {}", what, name,
                     near.empty() ? "" : fmt::format("Did you mean {}? ", near), fmt::join(ids, ", "));
}

template <typename Descriptor>
std::vector<std::string> all_ids(const std::vector<Offered<Descriptor>>& all) {
  std::vector<std::string> ids;
  for (const auto& offered : all) ids.emplace_back(offered.descriptor->id);
  return ids;
}

// key: of the configuration.
template <typename Descriptor>
Offered<Descriptor> need(const std::vector<Offered<Descriptor>>& all, const std::string& name, const std::string& what,
                         const std::string& key, const Recipe& recipe) {
  const std::vector<std::string> ids = ids_for(all, recipe.objective);
  const Offered<Descriptor>* found = find(all, plain(name));
  if (found == nullptr) fail(Code::config, "{}: {}", key, unknown_name(what, name, ids));
  if (!fits(*found->descriptor, recipe.objective))
    fail(Code::config, "{}: {} '{}' is for models of objective {}, this one is of objective {}; use one of: {}", key,
         what, found->descriptor->id, fmt::join(texts(found->descriptor->objectives), ", "),
         objective_name(recipe.objective), fmt::join(ids, ", "));
  return *found;
}

// The user's options over the recipe's, which belong to the recipe's choice.
GivenOptions merged(const GivenOptions& user, const GivenOptions& own, bool is_own) {
  GivenOptions all = user;
  if (is_own) all.insert(own.begin(), own.end());
  return all;
}

// Takes a schedule's name off the end of a sampler's, where the whole is no sampler: "dpmpp_2m_karras".
std::string take_schedule(const Registry& registry, std::string& sampler) {
  if (find(registry.samplers(), sampler) != nullptr) return "";
  for (size_t at = sampler.find('_'); at != std::string::npos; at = sampler.find('_', at + 1)) {
    const std::string rest = sampler.substr(at + 1);
    if (find(registry.schedules(), rest) == nullptr || find(registry.samplers(), sampler.substr(0, at)) == nullptr)
      continue;
    sampler.resize(at);
    return rest;
  }
  return "";
}

}  // namespace

SamplerChoice choose_sampler(const Registry& registry, const Recipe& recipe, const SampleConfig& config) {
  const SamplingSpec& own = recipe.sampling;
  std::string sampler = plain(config.sampler.empty() ? own.sampler : config.sampler);
  std::string schedule = take_schedule(registry, sampler);
  if (!config.scheduler.empty()) schedule = config.scheduler;
  if (schedule.empty()) schedule = own.scheduler;
  const auto chosen = need(registry.samplers(), sampler, "sampler", "sample.sampler", recipe);
  const auto spacing = need(registry.schedules(), schedule, "schedule", "sample.scheduler", recipe);
  const bool own_sampler = chosen.descriptor->id == own.sampler, own_schedule = spacing.descriptor->id == own.scheduler;
  return {std::make_shared<Sampler>(chosen, merged(config.sampler_params, own.sampler_params, own_sampler)),
          std::make_shared<Schedule>(spacing, merged(config.scheduler_params, own.scheduler_params, own_schedule))};
}

std::string unknown_sampler(const Registry& registry, const std::string& name) {
  std::string sampler = plain(name);
  take_schedule(registry, sampler);
  const auto all = registry.samplers();
  return find(all, sampler) != nullptr ? "" : unknown_name("sampler", name, all_ids(all));
}

std::string unknown_schedule(const Registry& registry, const std::string& name) {
  const auto all = registry.schedules();
  return find(all, plain(name)) != nullptr ? "" : unknown_name("schedule", name, all_ids(all));
}

SamplingSchedule schedule_of(const SamplerChoice& choice, const Recipe& recipe, int64_t steps, int64_t tokens) {
  const ScheduleFacts facts(recipe, choice.sampler->space(), steps, tokens);
  return SamplingSchedule(recipe, facts, choice.schedule->levels(facts.get()));
}

}  // namespace lh
