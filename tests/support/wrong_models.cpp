#include "support/wrong_models.h"

#include <gmock/gmock.h>

namespace lh::test {

using testing::HasSubstr;

void expect_refused(const std::string& plugin, const Shapes& whole, std::span<const WrongModel> rows) {
  for (const WrongModel& row : rows) {
    Shapes shapes = whole;
    row.change(shapes);
    try {
      const Described model(plugin, shapes);
      ADD_FAILURE() << row.name << " was taken";
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(row.text)) << row.name;
    }
  }
}

void expect_files_refused(const std::vector<std::string>& asked, const Shapes& whole,
                          std::span<const WrongModel> rows) {
  for (const WrongModel& row : rows) {
    const TempDir dir;
    Shapes shapes = whole;
    row.change(shapes);
    write_file(dir / "model.safetensors", filled(shapes));
    for (const std::string& plugin : asked)
      EXPECT_THAT(error_of([&] { const Model model(built_plugins(), single(dir / "model.safetensors"), plugin); }),
                  HasSubstr(row.text))
          << row.name;
  }
}

}  // namespace lh::test
