#include "data/tokenizer_yaml.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lh {
namespace {

constexpr int64_t most_tokens = 65536;  // of a text
constexpr int max_depth = 32;

class Reader {
 public:
  Reader(const YAML::Node& node, const YamlComplaint& wrong, std::initializer_list<const char*> known)
      : node_(node), wrong_(wrong) {
    check_fields(node, "a tokenizer", known);
  }

  void read(const char* field, std::string& out) const {
    if (const YAML::Node found = node_[field]) out = text(found, field);
  }
  void read(const char* field, bool& out) const {
    const YAML::Node found = node_[field];
    if (found && !(found.IsScalar() && YAML::convert<bool>::decode(found, out)))
      complain(found, fmt::format("{} must be true or false", field));
  }
  void read(const char* field, int64_t& out, int64_t low, int64_t high) const {
    const YAML::Node found = node_[field];
    if (found && !(whole(found, out) && out >= low && out <= high))
      complain(found, fmt::format("{} must be a whole number from {} to {}", field, low, high));
  }
  // Part of a path: no other folder can be reached by it.
  void read_name(const char* field, std::string& out) const { read_name(node_, field, out); }
  void read_name(const YAML::Node& node, const char* field, std::string& out) const {
    const YAML::Node found = node[field];
    if (!found) return;
    out = text(found, field);
    const auto plain = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("._-").find(c) != std::string_view::npos;
    };
    if (out.empty() || out.front() == '.' || !std::ranges::all_of(out, plain))
      complain(found, fmt::format("{} must be a name of letters, digits, '_', '-' and '.', found `{}`", field, out));
  }

  TokenName token(const YAML::Node& node, const char* field) const {
    std::string name = text(node, field);
    int64_t id = 0;
    const bool quoted = node.Tag() == "!";
    if (name.empty()) complain(node, fmt::format("{} must be a token or its id", field));
    if (quoted || !whole(node, id)) return name;
    if (id < 0 || id >= INT32_MAX) complain(node, fmt::format("{}: {} is no id of a token", field, id));
    return static_cast<int32_t>(id);
  }
  void read(const char* field, std::optional<TokenName>& out) const {
    if (const YAML::Node found = node_[field]) out = token(found, field);
  }
  void read(const char* field, std::optional<std::vector<TokenName>>& out) const {
    const YAML::Node found = node_[field];
    if (!found) return;
    out.emplace();
    if (!found.IsSequence()) {
      out->push_back(token(found, field));
      return;
    }
    for (const auto& item : found) out->push_back(token(item, field));
  }

  TokenizerSpec::Files files() const {
    TokenizerSpec::Files out;
    const YAML::Node found = node_["files"];
    if (!found) return out;
    check_fields(found, "files", {"folder", "config", "bundled"});
    read_name(found, "folder", out.folder);
    read_name(found, "config", out.config);
    read_name(found, "bundled", out.bundled);
    return out;
  }

  std::string rules() const {
    const YAML::Node found = node_["rules"];
    if (!found) return {};
    if (!found.IsMap()) complain(found, "rules must be a mapping");
    return to_json(found, 0).dump();
  }

  [[noreturn]] void complain(const YAML::Node& node, const std::string& what) const {
    wrong_(node, what);
    fail(Code::internal, "{}", what);
  }

 private:
  static bool whole(const YAML::Node& node, int64_t& out) {
    return node.IsScalar() && YAML::convert<int64_t>::decode(node, out);
  }
  std::string text(const YAML::Node& node, const char* field) const {
    if (!node.IsScalar()) complain(node, fmt::format("{} must be text", field));
    return node.Scalar();
  }
  void check_fields(const YAML::Node& node, const char* where, std::initializer_list<const char*> known) const {
    if (!node.IsMap()) complain(node, fmt::format("{} must be a mapping", where));
    std::vector<std::string> seen;
    for (const auto& item : node) {
      const std::string field = text(item.first, "a field's name");
      if (std::ranges::find(known, field) == known.end())
        complain(item.first, fmt::format("unknown field `{}` in {}; known: {}", field, where, fmt::join(known, ", ")));
      if (std::ranges::find(seen, field) != seen.end())
        complain(item.first, fmt::format("field `{}` is there twice in {}", field, where));
      seen.push_back(field);
    }
  }
  // Plain scalars are numbers, true, false or null where they look so; quoted ones are text.
  nlohmann::json to_json(const YAML::Node& node, int depth) const {
    if (depth == max_depth) complain(node, "rules are nested too deep");
    if (node.IsNull()) return nullptr;
    if (node.IsMap()) {
      nlohmann::json out = nlohmann::json::object();
      for (const auto& item : node) out[text(item.first, "a key of rules")] = to_json(item.second, depth + 1);
      return out;
    }
    if (node.IsSequence()) {
      nlohmann::json out = nlohmann::json::array();
      for (const auto& item : node) out.push_back(to_json(item, depth + 1));
      return out;
    }
    int64_t number = 0;
    if (node.Tag() == "!") return node.Scalar();
    if (node.Scalar() == "true" || node.Scalar() == "false") return node.Scalar() == "true";
    if (whole(node, number)) return number;
    return node.Scalar();
  }

  const YAML::Node& node_;
  const YamlComplaint& wrong_;
};

void read_common(const Reader& reader, TokenizerSpec& out) {
  reader.read_name("kind", out.kind);
  reader.read("pad", out.pad);
  reader.read("begin", out.begin);
  reader.read("end", out.end);
  out.rules = reader.rules();
}

}  // namespace

TokenizerSpec read_tokenizer_spec(const YAML::Node& node, const YamlComplaint& wrong) {
  const Reader reader(node, wrong,
                      {"kind", "files", "template", "system", "drop", "lower", "strip", "pad", "begin", "end", "side",
                       "length", "max_length", "mask", "optional", "rules"});
  TokenizerSpec out;
  for (const char* needed : {"kind", "length"})
    if (!node[needed]) reader.complain(node, fmt::format("a tokenizer needs the field `{}`", needed));
  read_common(reader, out);
  out.files = reader.files();
  reader.read("template", out.text);
  reader.read("system", out.system);
  if (out.text.find("{prompt}") == std::string::npos)
    reader.complain(node["template"], "template must hold {prompt}, the place of the prompt");
  if (node["system"] && out.text.find("{system}") == std::string::npos)
    reader.complain(node["system"], "system needs a template with {system}");
  reader.read("lower", out.lower);
  reader.read("strip", out.strip);
  std::string side = "right";
  reader.read("side", side);
  if (side != "right" && side != "left") reader.complain(node["side"], "side must be right or left");
  out.side = side == "right" ? TokenizerSpec::Side::right : TokenizerSpec::Side::left;
  reader.read("length", out.length, 1, most_tokens);
  reader.read("max_length", out.max_length, out.length, most_tokens);
  reader.read("drop", out.drop, 0, out.length - 1);
  reader.read("mask", out.mask);
  reader.read("optional", out.optional);
  return out;
}

TokenizerPreset read_tokenizer_preset(const std::string& yaml, const std::filesystem::path& file) {
  const YamlComplaint wrong = [&](const YAML::Node& node, const std::string& what) {
    fail(Code::data, "tokenizer {}: line {}: {}", file.string(), node.Mark().line + 1, what);
  };
  try {
    const YAML::Node root = YAML::Load(yaml);
    const Reader reader(root, wrong, {"kind", "pad", "begin", "end", "rules", "tokens", "merges"});
    TokenizerPreset out;
    if (!root["kind"]) reader.complain(root, "a tokenizer needs the field `kind`");
    read_common(reader, out.spec);
    reader.read("tokens", out.tokens, 1, INT32_MAX);
    reader.read("merges", out.merges, 0, INT32_MAX);
    return out;
  } catch (const YAML::Exception& error) {
    fail(Code::data, "tokenizer {}: line {}: {}", file.string(), error.mark.line + 1, error.msg);
  }
}

}  // namespace lh
