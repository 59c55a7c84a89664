// The `tokenizers` of a recipe, and presets, which have the same fields.
#include "data/tokenizer_yaml.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "config/scalar.h"
#include "data/quoted_text.h"

namespace lh {
namespace {

using yaml::Kind;
using yaml::Node;
using yaml::Strict;

constexpr Range lengths{.low = 1, .high = 65536};
constexpr Range counts{.low = 0, .high = INT32_MAX};
constexpr const char* where = "a tokenizer";

// Part of a path: no other folder can be reached by it.
void read_name(const Strict& in, const Node& node, std::string_view field, std::string& out) {
  const Node* found = node.find(field);
  if (found == nullptr) return;
  out = in.text(*found, std::string(field));
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("._-").find(c) != std::string_view::npos;
  };
  if (out.empty() || out.front() == '.' || !std::ranges::all_of(out, plain))
    in.wrong(*found, fmt::format("{} must be a name of letters, digits, '_', '-' and '.', found `{}`", field, out));
}

TokenName read_token(const Strict& in, const Node& node, const std::string& field) {
  const std::string name = in.text(node, field);
  if (name.empty()) in.wrong(node, fmt::format("{} must be a token or its id", field));
  const auto id = yaml::integer_of(node);
  if (!id) return name;
  if (*id < 0 || *id >= INT32_MAX) in.wrong(node, fmt::format("{}: {} is no id of a token", field, *id));
  return static_cast<int32_t>(*id);
}

void read_tokens(const Strict& in, const Node& node, const std::string& field,
                 std::optional<std::vector<TokenName>>& out) {
  const Node* found = node.find(field);
  if (found == nullptr) return;
  out.emplace();
  if (found->kind != Kind::list) return out->push_back(read_token(in, *found, field));
  for (const Node& item : found->items) out->push_back(read_token(in, item, field));
}

// Plain scalars are numbers, true, false or null where they look so; quoted ones are text.
nlohmann::json to_json(const Node& node) {
  if (node.kind == Kind::null) return nullptr;
  if (node.kind == Kind::map) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [key, value] : node.entries) out[key.text] = to_json(value);
    return out;
  }
  if (node.kind == Kind::list) {
    nlohmann::json out = nlohmann::json::array();
    for (const Node& item : node.items) out.push_back(to_json(item));
    return out;
  }
  if (!node.quoted && (node.text == "true" || node.text == "false")) return node.text == "true";
  if (const auto number = yaml::integer_of(node)) return *number;
  return node.text;
}

void read_common(const Strict& in, const Node& node, TokenizerSpec& out) {
  (void)in.need(node, "kind", where);
  read_name(in, node, "kind", out.kind);
  if (const Node* pad = node.find("pad")) out.pad = read_token(in, *pad, "pad");
  read_tokens(in, node, "begin", out.begin);
  read_tokens(in, node, "end", out.end);
  if (const Node* rules = node.find("rules")) {
    (void)in.entries(*rules, "rules");
    out.rules = to_json(*rules).dump();
  }
}

void read_text(const Strict& in, const Node& node, TokenizerSpec& out) {
  in.set(node, "template", out.text);
  in.set(node, "system", out.system);
  const bool quotes = QuotesPlace::find(out.text).has_value();
  if (QuotesPlace::begins_in(out.text) && !quotes)
    in.wrong(*node.find("template"), "{quotes|...} must be {quotes|<words before each>|<words behind each>}");
  if (out.text.find("{prompt}") == std::string::npos && !quotes)
    in.wrong(*node.find("template"), "template must hold {prompt}, the place of the prompt");
  if (const Node* system = node.find("system"); system != nullptr && out.text.find("{system}") == std::string::npos)
    in.wrong(*system, "system needs a template with {system}");
  const bool pictures = out.text.find("{pictures}") != std::string::npos;
  if (const Node* said = node.find("pictures")) {
    in.check_fields(*said, "pictures", {"each", "place"});
    if (!pictures) in.wrong(*said, "pictures needs a template with {pictures}");
    // Where a picture's places begin is then the same for every prompt.
    if (out.text.find("{pictures}") > out.text.find("{prompt}") || out.side == TokenizerSpec::Side::left)
      in.wrong(*said, "pictures must stand before {prompt} in the template, and pads on the right");
    const Node& each = in.need(*said, "each", "pictures");
    out.picture = in.text(each, "each");
    out.place = in.text(in.need(*said, "place", "pictures"), "place");
    if (out.picture.find("{places}") == std::string::npos)
      in.wrong(each, "each must hold {places}, where a picture's places are");
  } else if (pictures) {
    in.wrong(*node.find("template"), "{pictures} needs pictures: {each, place}");
  }
  if (const Node* negative = node.find("negative_template")) {
    out.negative_text = in.text(*negative, "negative_template");
    if (out.negative_text->find("{prompt}") == std::string::npos)
      in.wrong(*negative, "negative_template must hold {prompt}, the place of the prompt");
    if (pictures || node.find("drop") != nullptr)
      in.wrong(*negative, "negative_template goes neither with pictures nor with `drop`, which are of `template`");
  }
  in.set(node, "lower", out.lower);
  in.set(node, "strip", out.strip);
}

}  // namespace

TokenizerSpec read_tokenizer_spec(const Strict& in, const Node& node) {
  in.check_fields(node, where,
                  {"kind", "files", "template", "negative_template", "system", "pictures", "drop", "lower", "strip",
                   "pad", "begin", "end", "side", "length", "max_length", "rows", "mask", "optional", "rules"});
  TokenizerSpec out;
  read_common(in, node, out);
  if (const Node* files = node.find("files")) {
    in.check_fields(*files, "files", {"folder", "config", "bundled"});
    read_name(in, *files, "folder", out.files.folder);
    read_name(in, *files, "config", out.files.config);
    read_name(in, *files, "bundled", out.files.bundled);
  }
  if (const Node* side = node.find("side"))
    out.side =
        in.choice(*side, "side", {"right", "left"}) == "left" ? TokenizerSpec::Side::left : TokenizerSpec::Side::right;
  read_text(in, node, out);
  out.length = in.integer(in.need(node, "length", where), "length", lengths);
  const auto length = static_cast<double>(out.length);
  in.set(node, "max_length", out.max_length, {.low = length, .high = lengths.high});
  if (const Node* rows = node.find("rows")) {
    in.check_fields(*rows, "rows", {"tokens", "most"});
    out.row_tokens = in.integer(in.need(*rows, "tokens", "rows"), "tokens", {.low = 1, .high = length});
    out.max_rows = in.integer(in.need(*rows, "most", "rows"), "most", {.low = 2, .high = 1000});
  }
  in.set(node, "drop", out.drop, {.low = 0, .high = length - 1});
  in.set(node, "mask", out.mask);
  in.set(node, "optional", out.optional);
  return out;
}

TokenizerPreset read_tokenizer_preset(const std::string& yaml, const std::filesystem::path& file) {
  const Strict in("tokenizer " + file.string(), Code::data);
  const Node root = in.parse(yaml);
  in.check_fields(root, where, {"kind", "pad", "begin", "end", "rules", "tokens", "merges"});
  TokenizerPreset out;
  read_common(in, root, out.spec);
  in.set(root, "tokens", out.tokens, {.low = 1, .high = counts.high});
  in.set(root, "merges", out.merges, counts);
  return out;
}

}  // namespace lh
