#include "plugin/recipe_tokenizer.h"

#include "core/error.h"
#include "data/tokenizer_yaml.h"

namespace lh {

TokenizerSpec parse_tokenizer(const YAML::Node& node, const std::string& plugin) {
  return read_tokenizer_spec(node, [&](const YAML::Node& at, const std::string& what) {
    fail(Code::plugin, "plugin {}: recipe line {}: {}", plugin, at.Mark().line + 1, what);
  });
}

}  // namespace lh
