// yaml-cpp's events become nodes with places; what is not harmless is refused while they come.
#include "config/yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

namespace lh::yaml {
namespace {

Place place_of(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

struct Refused {};  // stops the parser; the reason is already in the list of problems

// Builds the tree from parser events. `open_` is the path from the root to the container being filled.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::vector<Problem>& problems) : problems_(problems) {}
  Node root;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++) refuse(mark, "a second document starts here, expected one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    add({.kind = Kind::null, .place = place_of(mark)});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not allowed: write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    add({.kind = Kind::scalar, .place = place_of(mark), .text = value, .quoted = tag == "!"});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Node node;
    std::optional<Node> key = {};                         // of a map: read, its value not yet
    std::unordered_map<std::string, int64_t> lines = {};  // of a map: where each key was first set
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& text) {
    problems_.push_back({place_of(mark), text});
    throw Refused();
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor) refuse(mark, "anchors (&name) are not allowed: write the value out");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, fmt::format("tags are not allowed, found {}", tag));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    check(mark, tag, anchor);
    if (open_.size() >= max_depth) refuse(mark, fmt::format("nested deeper than {} levels", max_depth));
    if (!open_.empty() && open_.back().node.kind == Kind::map && !open_.back().key)
      refuse(mark, "a key must be a word, found a list or mapping");
    open_.push_back({.node = {.kind = kind, .place = place_of(mark)}});
  }

  void close() {
    Node done = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(done));
  }

  void add(Node node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Level& level = open_.back();
    if (level.node.kind == Kind::list) {
      level.node.items.push_back(std::move(node));
    } else if (!level.key) {
      const auto [first, added] = level.lines.emplace(node.text, node.place.line);
      if (!added)
        problems_.push_back({node.place, fmt::format("{}: set twice, first in line {}", node.text, first->second)});
      level.key = std::move(node);
    } else {
      level.node.entries.emplace_back(std::move(*level.key), std::move(node));
      level.key.reset();
    }
  }

  std::vector<Problem>& problems_;
  std::vector<Level> open_;
  int documents_ = 0;
};

// The parser would end at some control characters and replace bytes that are not UTF-8, both silently.
std::optional<Problem> check_text(const std::string& text) {
  Place place;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    size_t follow = byte < 0x80 ? 0 : byte >= 0xC2 && byte < 0xE0 ? 1 : byte >= 0xE0 && byte < 0xF0 ? 2 : 3;
    if ((byte >= 0x80 && byte < 0xC2) || byte > 0xF4) return Problem{place, "not UTF-8 text"};
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F)
      return Problem{place, fmt::format("control character 0x{:02x} in the text", byte)};
    for (; follow; --follow)
      if (++i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
        return Problem{place, "not UTF-8 text"};
    if (byte == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
  }
  return std::nullopt;
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name.text == key) return &value;
  return nullptr;
}

const Node* Node::find_key(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name.text == key) return &name;
  return nullptr;
}

Node parse(const std::string& text, std::vector<Problem>& problems) {
  if (text.size() > static_cast<size_t>(max_bytes)) {
    problems.push_back({{}, fmt::format("{} bytes, expected at most {}", text.size(), max_bytes)});
    return {};
  }
  if (auto problem = check_text(text)) {
    problems.push_back(*problem);
    return {};
  }
  Builder builder(problems);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refused&) {
  } catch (const YAML::Exception& error) {
    problems.push_back({place_of(error.mark), "not YAML: " + error.msg});
  }
  return std::move(builder.root);
}

std::string describe(const Node& node) {
  if (node.kind == Kind::null) return "nothing";
  if (node.kind == Kind::list) return "a list";
  if (node.kind == Kind::map) return "a mapping";
  const std::string shown = node.text.size() > 60 ? node.text.substr(0, 57) + "..." : node.text;
  return node.quoted ? fmt::format("the text \"{}\"", shown) : shown;
}

}  // namespace lh::yaml
