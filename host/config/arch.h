// What ai-toolkit calls the kind of model (model.arch, or model.is_...: true): which plugin has it, and which of that
// plugin's settings it means. Plugins say so themselves (`arch` of their checkpoint YAML, model_keys.h).
#pragma once

#include <string>

#include "config/schema.h"

namespace lh {

// value: where the name stands. Of "name:tag" that of the name counts where no plugin has it with the tag. A plugin
// that the user names is not asked, and settings that the user gives stay.
void apply_arch(schema::Acting& on, const std::string& name, const yaml::Node& value);

// model.model_kwargs of ai-toolkit: train_NAME: false leaves an expert of the model out; others are files that the
// plugin has keys for, or values that mean settings of it (`model_kwargs` of its checkpoint YAML).
void apply_model_kwargs(schema::Acting& on, const yaml::Node& value);

// What the model is given at this place of the file.
GivenValue given_at(const schema::Acting& on, const std::string& text, const yaml::Place& place);

}  // namespace lh
