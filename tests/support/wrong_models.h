// Models that are not whole, or another family's: what a plugin says of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/model_files.h"

namespace lh::test {

struct WrongModel {
  const char* name;
  std::function<void(Shapes&)> change;  // of the whole model's
  const char* text;                     // that the error holds
};

// The plugin refuses the shapes of every row.
void expect_refused(const std::string& plugin, const Shapes& whole, std::span<const WrongModel> rows);
// So does the host a file of them, with each of `asked` as model.plugin; "" leaves the choice to it.
void expect_files_refused(const std::vector<std::string>& asked, const Shapes& whole, std::span<const WrongModel> rows);

}  // namespace lh::test
