// Whose states a file holds, and which of them another optimizer may go on with.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "run/update.h"

namespace lh {

// What goes into the metadata beside the states: the rule's id, revision and options, and what each state means.
std::map<std::string, std::string> optimizer_facts(const Update& update);

// States that were kept, with the facts that say whose they are. There may be other tensors and facts beside them.
struct OptimizerValues {
  std::map<std::string, Desc> states;  // by StoredState::key
  std::function<HostTensor(const std::string& key)> read;
  std::map<std::string, std::string> facts;
};
OptimizerValues optimizer_values(const Update& update);  // on the host

// What an optimizer has of the states it was given, by name.
struct TakeOver {
  std::string from, to;  // ids
  std::set<std::string> kept, fresh;
  bool same_rule = false, same_options = false;
  bool all_kept() const { return fresh.empty(); }
  // "optimizer 'lion' takes over from 'adamw': kept m; begun anew: none"
  std::string text() const;
};

// Begins every state anew, then loads those of `values` that are this optimizer's, or mean the same to it
// (LH_MEANING_*) where name, shape and type agree.
TakeOver load_optimizer(const OptimizerValues& values, Update& update);

}  // namespace lh
