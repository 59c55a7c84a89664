// Preloaded in place of cuDNN's version: LORA_TEST_CUDNN, as cudnnGetVersion spells it (91501 is 9.15.1).
#include <cstddef>
#include <cstdlib>

extern "C" size_t cudnnGetVersion() { return std::strtoull(std::getenv("LORA_TEST_CUDNN"), nullptr, 10); }
