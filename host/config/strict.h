// Reading YAML of a known form, such as what a plugin says of its model: the first mistake ends it with an error that
// names source, line and column. (A user's configuration is read to its end instead, and all mistakes come at once:
// load.cpp.)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "config/range.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/pattern.h"

namespace lh::yaml {

class Strict {
 public:
  // source: what errors begin with ("plugin mine: recipe"); code: theirs.
  Strict(std::string source, Code code) : source_(std::move(source)), code_(code) {}

  const std::string& source() const { return source_; }
  // The whole document. What is not YAML, or refused by yaml.h, comes in one error.
  Node parse(const std::string& text) const;

  // Throws "source:line:column: what".
  [[noreturn]] void wrong(const Node& node, const std::string& what) const;

  // Below, `where` and `what` name the node in messages: "a tokenizer", "length".
  using Names = std::initializer_list<std::string_view>;
  // A mapping with no other fields than these.
  void check_fields(const Node& node, const std::string& where, Names known) const;
  const Node& need(const Node& node, std::string_view field, const std::string& where) const;
  // The entries of a mapping whose names are the author's.
  const std::vector<std::pair<Node, Node>>& entries(const Node& node, const std::string& what) const;
  const std::vector<Node>& list(const Node& node, const std::string& what) const;

  std::string text(const Node& node, const std::string& what) const;
  std::vector<std::string> texts(const Node& node, const std::string& what) const;  // one, or a list of them
  std::string choice(const Node& node, const std::string& what, Names known) const;
  bool flag(const Node& node, const std::string& what) const;
  int64_t integer(const Node& node, const std::string& what, const Range& range = {}) const;
  double number(const Node& node, const std::string& what, const Range& range = {}) const;
  std::vector<int64_t> integers(const Node& node, const std::string& what, const Range& range = {}) const;
  Pattern pattern(const Node& node, const std::string& what) const;

  // The same for a field that may be absent: `out` then stays as it is.
  void set(const Node& node, std::string_view field, std::string& out) const;
  void set(const Node& node, std::string_view field, std::vector<std::string>& out) const;
  void set(const Node& node, std::string_view field, bool& out) const;
  void set(const Node& node, std::string_view field, int64_t& out, const Range& range = {}) const;
  void set(const Node& node, std::string_view field, double& out, const Range& range = {}) const;

 private:
  std::string source_;
  Code code_;
};

}  // namespace lh::yaml
