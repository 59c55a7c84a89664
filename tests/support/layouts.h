// Layouts of a model's files: whatever the layout, it opens as the same model.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/model_files.h"

namespace lh::test {

struct Layout {
  const char* name;
  std::function<ModelConfig(const std::filesystem::path& folder)> write;
  Change change = as_is;  // of the original's numbers
};

inline std::string layout_name(const testing::TestParamInfo<Layout>& info) { return info.param.name; }

// What is opened is of `plugin`, has the numbers of the model that `separate` writes, a file for each component,
// changed as the layout says, its variant, which is `variant` where that is not empty, and its roles can be built with
// these sizes.
void expect_same_model(const std::string& plugin, const Layout& layout,
                       const std::function<ModelConfig(const std::filesystem::path& folder)>& separate,
                       const std::vector<std::pair<std::string, Sizes>>& roles, const std::string& variant = "");

}  // namespace lh::test
