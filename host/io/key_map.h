// Renames keys between a plugin's canonical spelling and the diffusers one, both ways.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint.h"

namespace lh {

// "a.{i}.b.{*}": literal text with named holes; "{*}" takes any text, any other name a number.
class KeyPattern {
 public:
  using Values = std::map<std::string, std::string>;
  explicit KeyPattern(std::string_view text);  // throws std::invalid_argument saying what is wrong
  std::optional<Values> match(std::string_view key) const;
  std::string fill(const Values& values) const;
  std::vector<std::string> holes() const;

 private:
  struct Part {
    std::string text;  // literal, or the hole's name
    bool hole = false;
  };
  bool match(size_t part, std::string_view rest, Values& values) const;
  std::vector<Part> parts_;
};

class KeyMap {
 public:
  explicit KeyMap(const std::vector<KeyRule>& rules);
  bool empty() const { return rules_.empty(); }

  struct Native {
    const KeyRule* rule = nullptr;  // nullptr: no rules at all, the key stays as it is
    size_t source = 0;              // which of the rule's sources
    std::string key;
  };
  // rows_per_column(module): of the stored "<module>.weight", 0 when unknown; for rules with when_rows.
  using RowsPerColumn = std::function<int64_t(const std::string& module)>;
  // The canonical tensors that a key goes into: several where a rule splits its rows, none where no rule fits.
  std::vector<Native> native(const std::string& diffusers_key, const RowsPerColumn& rows_per_column) const;

  struct Diffusers {
    const KeyRule* rule = nullptr;
    std::vector<std::string> modules;  // in row order
  };
  std::optional<Diffusers> diffusers(const std::string& native_module, int64_t rows_per_column) const;
  // All names that the rules give a module, the one that counts first.
  std::vector<Diffusers> all_diffusers(const std::string& native_module, int64_t rows_per_column) const;

 private:
  struct Compiled {
    KeyRule rule;
    KeyPattern native;
    std::vector<KeyPattern> sources;
  };
  std::vector<Compiled> rules_;
};

}  // namespace lh
