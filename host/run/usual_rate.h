// The learning rate that users give an optimizer, which plugins of those that set their own rate name (optimizer.h of
// the SDK).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/registry.h"

namespace lh {

// Empty where the plugin names none. Throws like Registry::optimizer.
std::optional<double> usual_rate(const Registry& registry, const std::string& optimizer);
// Sets train.lr where nobody gave it; then, too, the lr of phases that have an optimizer and no lr of their own.
void fill_rates(const Registry& registry, TrainSection& train);
// What to say of settings whose rate is far below the usual one; empty: nothing. Phases are not looked at.
std::string low_rate(const Registry& registry, const TrainSection& train);
// The same of each phase, or of a run without phases, whose lr stands at `place` ("file:line:column: ").
std::vector<std::string> low_rates(const Registry& registry, const TrainSection& train, const std::string& place);

}  // namespace lh
