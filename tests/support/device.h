// The device that the tests run on: `lora_tests --device cuda`, the CPU unless given.
#pragma once

#include <string>

namespace lh::test {

const std::string& tested_device();

}  // namespace lh::test
