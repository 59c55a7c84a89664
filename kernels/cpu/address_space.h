// Whether memory can be had now, for libraries that do not ask.
#pragma once

#include <cstddef>

namespace lk::cpu {

// So many bytes of address space at once. OpenBLAS does not come back where it gets none for its buffers, and oneDNN
// writes its code through a null pointer.
bool there_is(size_t bytes);

}  // namespace lk::cpu
