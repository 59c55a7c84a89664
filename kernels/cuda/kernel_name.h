// A kernel's name as people read it.
#pragma once

#include <string>

namespace lk::cuda {

// "backward_kernel<__nv_bfloat16>": without namespaces and parameters; "?" where the runtime knows none.
std::string kernel_name(const void* kernel);

}  // namespace lk::cuda
