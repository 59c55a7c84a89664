// A model's plugin asked everything that a run asks it, in a process of its own first.
#pragma once

#include <set>
#include <string>

#include "config/config.h"
#include "core/tensor.h"
#include "plugin/registry.h"

namespace lh {

// Opens the model and builds each role once in a child: probe, create, recipe and build of the plugins that are asked.
// Throws what opening it throws; a crash, a hang, an exit are an lh::Error(Code::plugin). The same files with the same
// plugins are not tried again. To be called before there are threads. images: as Model is opened with.
void try_model(const Registry& registry, const ModelConfig& config, const std::string& plugin, DType compute,
               const std::set<std::string>& images = {});

}  // namespace lh
