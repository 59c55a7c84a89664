// Where the models of all plugins are published.
#pragma once

#include "io/repository.h"
#include "plugin/registry.h"

namespace lh {

Published published_models(const Registry& registry);
// Throws lh::Error(Code::data) where model.name_or_path is a path to nothing, with what to fetch where it looks like
// the name of a repository.
void require_model_path(const Registry& registry, const std::filesystem::path& path);

}  // namespace lh
