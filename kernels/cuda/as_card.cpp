#include "cuda/as_card.h"

namespace lk::cuda {

#ifdef LK_AS_CAPABILITY

void as_card(cudaDeviceProp& device) {
  constexpr int capability = LK_AS_CAPABILITY;
  // KiB of a processor, of which a block gets all but one from 8.0 on (CUDA C++ Programming Guide, technical
  // specifications).
  constexpr size_t shared = capability < 80                        ? 64
                            : capability == 80 || capability == 87 ? 164
                            : capability < 90 || capability >= 120 ? 100
                                                                   : 228;
  device.major = capability / 10;
  device.minor = capability % 10;
  device.sharedMemPerMultiprocessor = shared << 10;
  device.sharedMemPerBlockOptin = (capability < 80 ? shared : shared - 1) << 10;
}

#else

void as_card(cudaDeviceProp&) {}

#endif

}  // namespace lk::cuda
