// Whose states a file holds, and which of them another optimizer may go on with.
#pragma once

#include <map>
#include <string>

#include "run/update.h"

namespace lh {

// What goes into the metadata beside the states: the rule's id, revision and options, and what each state means.
std::map<std::string, std::string> optimizer_facts(const Update& update);

// Begins every state anew, then loads those of `tensors` that are this optimizer's, or mean the same to it. Says what
// is kept and what not where that is not all; false where a state began anew.
bool load_optimizer(const std::map<std::string, HostTensor>& tensors, const std::map<std::string, std::string>& facts,
                    Update& update);

}  // namespace lh
