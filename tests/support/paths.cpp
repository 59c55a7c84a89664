#include "support/paths.h"

namespace lh::test {

const char* source_dir() { return LORA_SOURCE_DIR; }
const char* binary_dir() { return LORA_BINARY_DIR; }
const char* test_data() { return LORA_SOURCE_DIR "/tests/data"; }

}  // namespace lh::test
