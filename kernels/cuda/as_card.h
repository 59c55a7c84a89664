// A build for trying what runs on cards that are not at hand: it takes the device for one of another capability.
#pragma once

#include <cuda_runtime.h>

namespace lk::cuda {

// Gives `device` the capability that CMake's LORA_AS_CAPABILITY names, and the shared memory of its cards; in other
// builds nothing. What is chosen by them is then chosen as there, but libraries and the code of operations go on as on
// the device.
void as_card(cudaDeviceProp& device);

}  // namespace lk::cuda
