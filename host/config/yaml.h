// A YAML document as a plain tree whose nodes know where they stand, for errors that name line and column.
//
// Only the harmless part of YAML is read: one document of mappings, lists and scalars. Anchors, aliases, tags, further
// documents, duplicate keys, more than 1 MiB and more than 32 levels are refused while parsing, before a tree exists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lh::yaml {

inline constexpr int64_t max_bytes = 1 << 20;
inline constexpr int max_depth = 32;

struct Place {  // 1-based
  int line = 1, column = 1;
  auto operator<=>(const Place&) const = default;
};

enum class Kind { null, scalar, list, map };

struct Node {
  Kind kind = Kind::null;
  Place place = {};
  std::string text = {};                            // of a scalar
  bool quoted = false;                              // "1" is text, 1 is a number
  std::vector<Node> items = {};                     // of a list
  std::vector<std::pair<Node, Node>> entries = {};  // of a map, in the order of the file

  const Node* find(std::string_view key) const;      // nullptr when absent
  const Node* find_key(std::string_view key) const;  // the key itself, for its place
};

struct Problem {
  Place place;
  std::string text;  // "key: what is wrong"
};

// Appends what is wrong to `problems`; the tree is usable when nothing was added.
Node parse(const std::string& text, std::vector<Problem>& problems);

// What a node is, in words for a message: "a list", "text \"abc\"", "nothing".
std::string describe(const Node& node);

}  // namespace lh::yaml
