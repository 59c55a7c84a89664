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

// What most likely is wrong where yaml-cpp says what it missed. Its texts have begun so in all of its versions.
struct Hint {
  std::string_view said, hint;
};
constexpr Hint hints[] = {
    {"illegal map value",
     ". A text with `: ` in it needs quotes, a key a space behind its colon, also in the line before"},
    {"end of map not found", ". Keys of one mapping are indented alike"},
    {"end of sequence not found",
     ". Entries of one list are indented alike, and a text that begins with [ or { needs quotes"},
    {"end of map flow not found", ". A { is not closed"},
    {"end of sequence flow not found", ". A [ is not closed"},
    {"bad character found while scanning hex", ". A \\ in \"...\" begins an escape: write '...' or /"},
    {"unknown escape character", ". A \\ in \"...\" begins an escape: write '...' or /"},
};

// A tab in front of a line's text ends in any of these, and in one of its own.
bool tab_before(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string one;
  for (int i = 0; i <= line && std::getline(lines, one); ++i) {
  }
  return one.substr(0, one.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

constexpr std::string_view open_quote = "illegal EOF in scalar";

// yaml-cpp notices a quote that is never closed where the text ends within a line. Where it ends with a line, all that
// follows the quote would become its text, so a comment is put there, which is one unless a quote is open.
std::string with_end(const std::string& text) { return text.ends_with('\n') ? text + '#' : text; }

void read(const std::string& text, YAML::EventHandler& handler) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  while (parser.HandleNextDocument(handler)) {
  }
}

bool ends_in_quotes(const std::string& text) try {
  std::vector<Problem> unread;
  Builder builder(unread);
  read(with_end(text), builder);
  return false;
} catch (const Refused&) {
  return false;
} catch (const YAML::Exception& error) {
  return error.msg.starts_with(open_quote);
}

// The quote that is never closed: the last one before which none is open. Those behind it are part of its text.
std::optional<Place> place_of_open_quote(const std::string& text) {
  constexpr int most_tries = 50;
  size_t at = text.size();
  for (int tries = 0; tries < most_tries && at > 0; ++tries) {
    at = text.find_last_of("'\"", at - 1);
    if (at == std::string::npos) return std::nullopt;
    if (ends_in_quotes(text.substr(0, at))) continue;
    const size_t line = text.rfind('\n', at) + 1;  // npos + 1 is 0
    return Place{static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1,
                 static_cast<int>(at - line) + 1};
  }
  return std::nullopt;
}

Problem problem_of(const YAML::Exception& error, const std::string& text) {
  if (error.msg.starts_with(open_quote)) {
    const Place end = place_of(error.mark), place = place_of_open_quote(text).value_or(end);
    return {place, "not YAML: the quote that begins here is not closed"};
  }
  const auto row = std::ranges::find_if(hints, [&](const Hint& h) { return error.msg.starts_with(h.said); });
  const std::string_view hint = tab_before(text, error.mark.line) ? ". Indent with spaces, not with tabs"
                                : row == std::end(hints)          ? ""
                                                                  : row->hint;
  return {place_of(error.mark), fmt::format("not YAML: {}{}", error.msg, hint)};
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
    read(with_end(text), builder);
  } catch (const Refused&) {
  } catch (const YAML::Exception& error) {
    problems.push_back(problem_of(error, text));
  }
  return std::move(builder.root);
}

namespace {

// The beginning of a text, whole characters of it, on one line.
std::string one_line(std::string_view text) {
  constexpr size_t most = 60;
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (shown.size() >= most - 3 && text.size() > most && (byte & 0xC0) != 0x80) return shown + "...";
    if (c == '\n')
      shown += "\\n";
    else if (byte < 0x20 || byte == 0x7F)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown;
}

}  // namespace

std::string describe(const Node& node) {
  if (node.kind == Kind::null) return "nothing";
  if (node.kind == Kind::list) return "a list";
  if (node.kind == Kind::map) return "a mapping";
  const std::string shown = one_line(node.text);
  return node.quoted ? fmt::format("the text \"{}\"", shown) : shown;
}

}  // namespace lh::yaml
