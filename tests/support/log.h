// Warnings that the code under test logged.
#pragma once

#include <string>
#include <vector>

namespace lh::test {

// Warnings and errors since the last call. A test that expects some takes them; what is left at its end fails it.
std::vector<std::string> take_warnings();

}  // namespace lh::test
