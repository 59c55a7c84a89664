#include "support/layouts.h"

#include "support/paths.h"

namespace lh::test {

namespace fs = std::filesystem;

void expect_same_model(const std::string& plugin, const Layout& layout,
                       const std::function<ModelConfig(const fs::path& folder)>& separate,
                       const std::vector<std::pair<std::string, Sizes>>& roles, const std::string& variant) {
  const TempDir dir;
  fs::create_directories(dir / "separate");
  fs::create_directories(dir / "model");
  const Model want(built_plugins(), separate(dir / "separate"), "");
  const Model got(built_plugins(), layout.write(dir / "model"), "");
  EXPECT_EQ(got.id(), plugin);
  EXPECT_EQ(got.recipe().variant, variant.empty() ? want.recipe().variant : variant);
  expect_same(got.checkpoint(), want.checkpoint(), layout.change);
  for (const auto& [role, sizes] : roles) EXPECT_NO_THROW(got.build(role, sizes, DType::f32)) << role;
}

}  // namespace lh::test
