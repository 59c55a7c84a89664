// Where the tests' data and what was built lie. Functions, and not macros: the tests then compile alike wherever they
// are.
#pragma once

namespace lh::test {

const char* source_dir();  // of the project
const char* binary_dir();  // bin/ and lib/ are in it
const char* test_data();   // tests/data

}  // namespace lh::test
