// One build of every part of a plugin: what crashes, hangs or bends the process does it here.
#pragma once

#include "plugin/loader.h"

namespace lh {

// To be called in a child (core/apart.h). Errors that a part tells are not this one's: they are told where it is used.
// Models are tried over their weights (encode/try_model.h).
void rehearse(const Plugin& plugin);

}  // namespace lh
