// A plugin's `checkpoint` YAML. Every mistake is named with the plugin and the line, because its author reads it.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "core/error.h"
#include "io/checkpoint.h"
#include "io/key_map.h"
#include "io/lora_keys.h"
#include "io/lora_names.h"

namespace lh {
namespace {

class SpecReader {
 public:
  explicit SpecReader(const std::string& plugin) : plugin_(plugin) {}

  CheckpointSpec read(const YAML::Node& root) const {
    check_keys(root, "the checkpoint", {"components", "lora_loaders"});
    CheckpointSpec spec;
    const YAML::Node components = root["components"];
    if (!components || !components.IsMap() || components.size() == 0)
      wrong(root, "`components` must list at least one component");
    for (const auto& item : components) {
      const std::string name = text(item.first, "a component's name");
      if (spec.component(name) != nullptr) wrong(item.first, fmt::format("component `{}` is there twice", name));
      spec.components.push_back(component(name, item.second));
    }
    if (const YAML::Node loaders = root["lora_loaders"]) {
      if (!loaders.IsMap()) wrong(loaders, "lora_loaders must be a mapping of program to rules");
      for (const auto& item : loaders) spec.lora_loaders.push_back(loader(spec, item.first, item.second));
    }
    return spec;
  }

  [[noreturn]] void wrong(const YAML::Mark& mark, const std::string& what) const {
    fail(Code::plugin, "plugin {}: checkpoint YAML line {}: {}", plugin_, mark.line + 1, what);
  }

 private:
  [[noreturn]] void wrong(const YAML::Node& node, const std::string& what) const { wrong(node.Mark(), what); }

  void check_keys(const YAML::Node& node, const std::string& what, std::initializer_list<const char*> allowed) const {
    if (!node.IsMap()) wrong(node, fmt::format("{} must be a mapping", what));
    std::set<std::string> seen;
    for (const auto& item : node) {
      const std::string key = text(item.first, "a key");
      if (std::ranges::find(allowed, key) == allowed.end())
        wrong(item.first, fmt::format("unknown key `{}` in {}; known: {}", key, what, fmt::join(allowed, ", ")));
      if (!seen.insert(key).second) wrong(item.first, fmt::format("key `{}` is there twice in {}", key, what));
    }
  }

  std::string text(const YAML::Node& node, const std::string& what) const {
    if (!node.IsScalar()) wrong(node, fmt::format("{} must be text", what));
    return node.Scalar();
  }

  bool flag(const YAML::Node& node, const std::string& what) const {
    bool value = false;
    if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value))
      wrong(node, fmt::format("{} must be true or false", what));
    return value;
  }

  std::vector<std::string> texts(const YAML::Node& node, const std::string& what) const {
    if (node.IsScalar()) return {node.Scalar()};
    if (!node.IsSequence()) wrong(node, fmt::format("{} must be a text or a list of texts", what));
    std::vector<std::string> list;
    for (const auto& item : node) list.push_back(text(item, "an item of " + what));
    return list;
  }

  ComponentSpec component(const std::string& name, const YAML::Node& node) const {
    const std::string what = fmt::format("component `{}`", name);
    check_keys(node, what,
               {"config", "prefixes", "marker", "ignore", "aliases", "also", "folder", "diffusers", "lora"});
    ComponentSpec out;
    out.name = name;
    out.config_key = node["config"] ? text(node["config"], "config") : "name_or_path";
    if (node["prefixes"]) out.prefixes = texts(node["prefixes"], "prefixes");
    if (std::ranges::find(out.prefixes, std::string()) == out.prefixes.end()) out.prefixes.emplace_back();
    if (!node["marker"]) wrong(node, what + " needs a `marker`, a key that proves that the component is there");
    out.marker = text(node["marker"], "marker");
    if (node["ignore"]) out.ignore = texts(node["ignore"], "ignore");
    if (const YAML::Node aliases = node["aliases"]) {
      if (!aliases.IsMap()) wrong(aliases, "aliases must be a mapping of missing key to the key to use");
      for (const auto& item : aliases) {
        const std::string key = text(item.first, "an alias"), instead = text(item.second, "an alias");
        check_holes(item.second, key, instead);
        out.aliases[key] = instead;
      }
    }
    if (node["also"]) out.also = texts(node["also"], "also");
    if (node["folder"]) out.folder = text(node["folder"], "folder");
    if (const YAML::Node rules = node["diffusers"]) {
      if (!rules.IsSequence()) wrong(rules, "diffusers must be a list of rules");
      for (const auto& item : rules)
        for (KeyRule& part : this->rules(item)) out.diffusers.push_back(std::move(part));
    }
    if (const YAML::Node lora = node["lora"]) {
      check_keys(lora, "lora", {"kohya", "diffusers", "native", "parts"});
      if (lora["kohya"]) out.lora.kohya = texts(lora["kohya"], "kohya");
      if (lora["diffusers"]) out.lora.diffusers = texts(lora["diffusers"], "diffusers");
      if (lora["native"]) out.lora.native = texts(lora["native"], "native");
      for (const auto& item : lora["parts"]) out.lora.parts.push_back(part_name(item));
    }
    return out;
  }

  LoraPartName part_name(const YAML::Node& node) const {
    check_keys(node, "an item of lora.parts", {"name", "of", "rows"});
    if (!node["name"] || !node["of"] || !node["rows"])
      wrong(node, "an item of lora.parts needs `name`, `of` and `rows`");
    LoraPartName out{text(node["name"], "name"), text(node["of"], "of")};
    std::vector<int64_t> rows;
    if (!YAML::convert<std::vector<int64_t>>::decode(node["rows"], rows) || rows.size() != 2 || rows[0] < 0 ||
        rows[1] <= rows[0] || rows[1] > 1024)
      wrong(node["rows"],
            "rows must be [first, end): how many times the module's inputs lie before them, and with them");
    out.first = rows[0];
    out.end = rows[1];
    check_holes(node, out.name, out.of);
    return out;
  }

  // One rule, or one for each of the names that a tensor's rows are split between.
  std::vector<KeyRule> rules(const YAML::Node& node) const {
    check_keys(node, "a diffusers rule", {"native", "from", "how", "exact", "when_rows"});
    if (!node["native"] || !node["from"]) wrong(node, "a diffusers rule needs `native` and `from`");
    const std::vector<std::string> natives = texts(node["native"], "native");
    KeyRule out;
    out.diffusers = texts(node["from"], "from");
    if (natives.empty()) wrong(node["native"], "native must name at least one module");
    if (node["exact"]) out.exact = flag(node["exact"], "exact");
    const std::string how = node["how"]                ? text(node["how"], "how")
                            : natives.size() > 1       ? "split_rows"
                            : out.diffusers.size() > 1 ? "concat_rows"
                                                       : "copy";
    static const std::map<std::string, Assemble> ways{
        {"copy", Assemble::copy},           {"concat_rows", Assemble::concat_rows},
        {"split_rows", Assemble::copy},     {"swap_halves", Assemble::swap_halves},
        {"transpose", Assemble::transpose}, {"conv1x1", Assemble::copy}};
    const auto way = ways.find(how);
    if (way == ways.end())
      wrong(node["how"],
            fmt::format("how `{}`; known: copy, concat_rows, split_rows, swap_halves, transpose, conv1x1", how));
    out.assemble = way->second;
    out.conv1x1 = how == "conv1x1";
    if (out.diffusers.empty() || (out.diffusers.size() > 1 && out.assemble != Assemble::concat_rows))
      wrong(node["from"], fmt::format("how `{}` takes one `from`, found {}", how, out.diffusers.size()));
    if ((natives.size() > 1) != (how == "split_rows"))
      wrong(node["native"], fmt::format("how `{}` takes {} `native`, found {}", how,
                                        how == "split_rows" ? "several" : "one", natives.size()));
    if (const YAML::Node rows = node["when_rows"];
        rows && (!YAML::convert<int64_t>::decode(rows, out.when_rows) || out.when_rows < 1))
      wrong(rows, "when_rows must be a positive number");
    std::vector<KeyRule> all;
    out.parts = static_cast<int64_t>(natives.size());
    for (const std::string& native : natives) {
      out.native = native;
      out.part = static_cast<int64_t>(all.size());
      for (const std::string& source : out.diffusers) check_holes(node, native, source);
      all.push_back(out);
    }
    return all;
  }

  LoraLoader loader(const CheckpointSpec& spec, const YAML::Node& program, const YAML::Node& rules) const {
    LoraLoader out{text(program, "a program's name"), {}};
    if (!rules.IsSequence()) wrong(rules, fmt::format("`{}` must be a list of rules", out.program));
    for (const auto& item : rules) out.rules.push_back(loader_rule(spec, item));
    return out;
  }

  LoraLoaderRule loader_rule(const CheckpointSpec& spec, const YAML::Node& node) const {
    check_keys(node, "a lora_loaders rule",
               {"components", "names", "tensors", "only", "except", "not_beside", "full_size", "one_rank"});
    if (!node["components"] || !node["names"] || !node["tensors"])
      wrong(node, "a lora_loaders rule needs `components`, `names` and `tensors`");
    LoraLoaderRule out;
    out.components = texts(node["components"], "components");
    for (const std::string& name : out.components)
      if (spec.component(name) == nullptr) wrong(node["components"], fmt::format("there is no component `{}`", name));
    for (const std::string& name : texts(node["names"], "names")) out.names.push_back(spelling(node["names"], name));
    for (const std::string& name : texts(node["tensors"], "tensors")) add_family(node["tensors"], name, out.tensors);
    if (node["only"]) out.only = patterns(node["only"], "only");
    if (node["except"]) out.except = patterns(node["except"], "except");
    if (node["not_beside"]) out.not_beside = texts(node["not_beside"], "not_beside");
    if (node["one_rank"]) out.one_rank = flag(node["one_rank"], "one_rank");
    if (const YAML::Node shapes = node["full_size"]) {
      if (!shapes.IsMap()) wrong(shapes, "full_size must be a mapping of weight to shape");
      for (const auto& item : shapes) {
        std::vector<int64_t> dims;
        if (!YAML::convert<std::vector<int64_t>>::decode(item.second, dims) || dims.empty())
          wrong(item.second, "a shape must be a list of numbers");
        out.full_size.emplace(text(item.first, "a weight"), Shape(dims));
      }
    }
    return out;
  }

  LoraSpelling spelling(const YAML::Node& node, const std::string& name) const {
    const auto found = parse_spelling(name);
    if (!found)
      wrong(node, fmt::format("name `{}` must be a prefix and one of {{native}}, {{native_}}, {{diffusers}}, "
                              "{{diffusers_}}, {{processor}}",
                              name));
    return *found;
  }

  void add_family(const YAML::Node& node, const std::string& name, std::set<std::string>& out) const {
    const std::vector<std::string_view> pairs = lora_pair_families(), all = lora_families();
    if (name == "pairs")
      out.insert(pairs.begin(), pairs.end());
    else if (std::ranges::find(all, name) != all.end())
      out.insert(name);
    else
      wrong(node, fmt::format("tensors `{}`; known: pairs, {}", name, fmt::join(all, ", ")));
  }

  std::vector<std::regex> patterns(const YAML::Node& node, const std::string& what) const {
    std::vector<std::regex> out;
    for (const std::string& pattern : texts(node, what)) try {
        out.emplace_back(pattern);
      } catch (const std::regex_error& e) {
        wrong(node, fmt::format("`{}` is no regular expression: {}", pattern, e.what()));
      }
    return out;
  }

  void check_holes(const YAML::Node& node, const std::string& a, const std::string& b) const {
    const auto holes = [&](const std::string& text) {
      try {
        return KeyPattern(text).holes();
      } catch (const std::invalid_argument& e) {
        wrong(node, fmt::format("`{}`: {}", text, e.what()));
      }
    };
    if (holes(a) != holes(b)) wrong(node, fmt::format("`{}` and `{}` must have the same {{...}}", a, b));
  }

  const std::string& plugin_;
};

}  // namespace

CheckpointSpec CheckpointSpec::parse(const std::string& yaml, const std::string& plugin) {
  const SpecReader reader(plugin);
  try {
    return reader.read(YAML::Load(yaml));
  } catch (const YAML::Exception& e) {
    reader.wrong(e.mark, e.msg);
  }
}

const ComponentSpec* CheckpointSpec::component(const std::string& name) const {
  const auto found = std::ranges::find(components, name, &ComponentSpec::name);
  return found == components.end() ? nullptr : &*found;
}

}  // namespace lh
