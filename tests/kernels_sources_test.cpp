// What every kernel's source has to keep to, and no compiler checks.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/source_files.h"

namespace lh::test {
namespace {

// What stands behind the opening brace of each kernel of a file. Parameters have no braces; declarations have no body.
std::vector<std::string> bodies_of_kernels(const std::string& source) {
  constexpr std::string_view mark = "__global__";
  std::vector<std::string> bodies;
  for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at + mark.size())) {
    const size_t brace = source.find_first_of("{;", at);
    if (brace == std::string::npos || source[brace] == ';') continue;
    const size_t first = source.find_first_not_of(" \n", brace + 1);
    bodies.push_back(source.substr(first, 60));
  }
  return bodies;
}

// Their blocks may come before the operation in front of them is done (kernels/cuda/await_previous.cuh).
TEST(KernelSources, EveryKernelAwaitsWhatCameBefore) {
  size_t count = 0;
  for (const char* ending : {".cu", ".cuh"}) {
    for (const std::string& source : source_files("kernels/cuda", ending)) {
      for (const std::string& body : bodies_of_kernels(source)) {
        EXPECT_TRUE(body.starts_with("await_previous();"))
            << "a kernel begins with " << body << "\nin a file that begins with\n"
            << source.substr(0, 200);
        ++count;
      }
    }
  }
  EXPECT_GT(count, 90u);
}

}  // namespace
}  // namespace lh::test
