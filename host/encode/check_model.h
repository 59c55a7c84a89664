// Whether the parts of a model plugin fit each other: every role is built at one size, and names, shapes and types are
// compared with the recipe. What does not fit would otherwise show after hours, at the first sample or save.
#pragma once

#include "plugin/model.h"

namespace lh {

// Throws lh::Error(Code::plugin) that names plugin, role and field. Roles whose files were not given are left out.
void check_model(const Model& model, DType compute);

}  // namespace lh
