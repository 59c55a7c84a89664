// What every kernel's source has to keep to, and no compiler checks.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/source_files.h"

namespace lh::test::kernels_sources_test {
namespace {

struct Kernel {
  std::string name, body;  // the first of what stands behind its opening brace
};

// Of a file. Parameters have no braces; declarations have no body.
std::vector<Kernel> kernels_of(const std::string& source) {
  constexpr std::string_view mark = "__global__";
  std::vector<Kernel> kernels;
  for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at + mark.size())) {
    const size_t brace = source.find_first_of("{;", at);
    if (brace == std::string::npos || source[brace] == ';') continue;
    const size_t parameters = source.find("_kernel(", at), end = parameters + std::string_view("_kernel").size();
    const size_t name = parameters < brace ? source.find_last_of(" \n*", parameters) + 1 : end;
    const size_t first = source.find_first_not_of(" \n", brace + 1);
    kernels.push_back({source.substr(name, end - name), source.substr(first, 60)});
  }
  return kernels;
}

// Their blocks may come before the operation in front of them is done (kernels/cuda/await_previous.cuh).
TEST(KernelSources, EveryKernelAwaitsWhatCameBefore) {
  // These do before what the kernel in front has no part in, as they say.
  std::set<std::string> early = {"project_kernel",           "spread_kernel",  "product_kernel", "through_kernel",
                                 "few_keys_backward_kernel", "adapter_kernel", "gemv_kernel"};
  size_t count = 0;
  for (const char* ending : {".cu", ".cuh"}) {
    for (const std::string& source : source_files("kernels/cuda", ending)) {
      for (const Kernel& kernel : kernels_of(source)) {
        ++count;
        if (kernel.body.starts_with("await_previous();")) continue;
        EXPECT_EQ(early.erase(kernel.name), 1u) << kernel.name << " begins with " << kernel.body;
        EXPECT_NE(source.find("await_previous();"), std::string::npos) << kernel.name;
      }
    }
  }
  EXPECT_GT(count, 90u);
  EXPECT_TRUE(early.empty()) << *early.begin() << " awaits what came before at once";
}

}  // namespace
}  // namespace lh::test::kernels_sources_test
