// A module in place of the CUDA backend's, of another build of the library of kernels.
#include "backend_module.h"

extern "C" LK_API const lk::BackendModule lk_backend_module;
const lk::BackendModule lk_backend_module{"another", nullptr};
