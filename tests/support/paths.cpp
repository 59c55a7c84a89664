#include "support/paths.h"

namespace lh::test {

const char* source_dir() { return LORA_SOURCE_DIR; }
const char* binary_dir() { return LORA_BINARY_DIR; }
const char* test_data() { return LORA_SOURCE_DIR "/tests/data"; }
std::filesystem::path toy_folder() { return LORA_SOURCE_DIR "/examples/toy_flux"; }

}  // namespace lh::test
