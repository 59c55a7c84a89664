// Where the tests' data and what was built lie. Functions, and not macros: the tests then compile alike wherever they
// are.
#pragma once

#include <filesystem>

namespace lh::test {

const char* source_dir();  // of the project
const char* binary_dir();  // bin/ and lib/ are in it
const char* test_data();   // tests/data

std::filesystem::path toy_folder();  // examples/toy_flux, the small model that comes with the project

}  // namespace lh::test
