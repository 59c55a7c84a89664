// Where the models of all plugins are published.
#pragma once

#include "io/repository.h"
#include "plugin/registry.h"

namespace lh {

Published published_models(const Registry& registry);

}  // namespace lh
