// A plugin's `checkpoint` YAML. Every mistake is named with the plugin and the place, because its author reads it.
#include <algorithm>
#include <map>
#include <mutex>

#include "config/strict.h"
#include "core/error.h"
#include "io/checkpoint.h"
#include "io/expert_spec.h"
#include "io/key_map.h"
#include "io/kohya_ss_model_spec.h"
#include "io/lora_loader_spec.h"
#include "io/model_key_spec.h"
#include "io/musubi_model_spec.h"
#include "io/repository.h"

namespace lh {
namespace {

using yaml::Kind;
using yaml::Node;
using yaml::Strict;

void check_holes(const Strict& in, const Node& node, const std::string& a, const std::string& b) {
  const auto holes = [&](const std::string& text) {
    try {
      return KeyPattern(text).holes();
    } catch (const std::invalid_argument& e) {
      in.wrong(node, fmt::format("`{}`: {}", text, e.what()));
    }
  };
  if (holes(a) != holes(b)) in.wrong(node, fmt::format("`{}` and `{}` must have the same {{...}}", a, b));
}

struct Way {
  std::string_view name;
  Assemble assemble;
};
constexpr Way ways[] = {{"copy", Assemble::copy},           {"concat_rows", Assemble::concat_rows},
                        {"split_rows", Assemble::copy},     {"swap_halves", Assemble::swap_halves},
                        {"transpose", Assemble::transpose}, {"conv1x1", Assemble::copy}};

// How the names of a rule become one another: as written, or as many of them as there are say.
const Way& way_of(const Strict& in, const Node& rule, size_t natives, size_t sources) {
  const Node* how = rule.find("how");
  const std::string name =
      how != nullptr
          ? in.choice(*how, "how", {"copy", "concat_rows", "split_rows", "swap_halves", "transpose", "conv1x1"})
      : natives > 1 ? "split_rows"
      : sources > 1 ? "concat_rows"
                    : "copy";
  const Way& way = *std::ranges::find(ways, name, &Way::name);
  if (sources == 0 || (sources > 1 && way.assemble != Assemble::concat_rows))
    in.wrong(*rule.find("from"), fmt::format("how `{}` takes one `from`, found {}", name, sources));
  if ((natives > 1) != (name == "split_rows"))
    in.wrong(*rule.find("native"), fmt::format("how `{}` takes {} `native`, found {}", name,
                                               name == "split_rows" ? "several" : "one", natives));
  return way;
}

// One rule, or one for each of the names that a tensor's rows are split between.
std::vector<KeyRule> read_rules(const Strict& in, const Node& node) {
  const std::string where = "a diffusers rule";
  in.check_fields(node, where, {"native", "from", "how", "exact", "when_rows", "beside"});
  const Node &native = in.need(node, "native", where), &from = in.need(node, "from", where);
  const std::vector<std::string> natives = in.texts(native, "native");
  if (natives.empty()) in.wrong(native, "native must name at least one module");
  KeyRule rule;
  rule.diffusers = in.texts(from, "from");
  const Way& way = way_of(in, node, natives.size(), rule.diffusers.size());
  rule.assemble = way.assemble;
  rule.conv1x1 = way.name == "conv1x1";
  in.set(node, "exact", rule.exact);
  in.set(node, "when_rows", rule.when_rows, {.low = 1});
  in.set(node, "beside", rule.beside);
  rule.parts = static_cast<int64_t>(natives.size());
  std::vector<KeyRule> all;
  for (const std::string& name : natives) {
    rule.native = name;
    rule.part = static_cast<int64_t>(all.size());
    for (const std::string& source : rule.diffusers) check_holes(in, node, name, source);
    all.push_back(rule);
  }
  return all;
}

LoraPartName read_part_name(const Strict& in, const Node& node) {
  const std::string where = "an item of lora.parts";
  in.check_fields(node, where, {"name", "of", "rows"});
  LoraPartName out{in.text(in.need(node, "name", where), "name"), in.text(in.need(node, "of", where), "of")};
  const Node& rows = in.need(node, "rows", where);
  const std::vector<int64_t> range = in.integers(rows, "rows", {.low = 0, .high = 1024});
  if (range.size() != 2 || range[1] <= range[0])
    in.wrong(rows, "rows must be [first, end): how many times the module's inputs lie before them, and with them");
  out.first = range[0];
  out.end = range[1];
  check_holes(in, node, out.name, out.of);
  return out;
}

LoraNames read_lora(const Strict& in, const Node& node) {
  in.check_fields(node, "lora", {"kohya", "diffusers", "native", "parts"});
  LoraNames out;
  in.set(node, "kohya", out.kohya);
  in.set(node, "diffusers", out.diffusers);
  in.set(node, "native", out.native);
  if (const Node* parts = node.find("parts"))
    for (const Node& item : in.list(*parts, "lora.parts")) out.parts.push_back(read_part_name(in, item));
  return out;
}

ComponentSpec read_component(const Strict& in, const std::string& name, const Node& node) {
  const std::string where = fmt::format("component `{}`", name);
  in.check_fields(
      node, where,
      {"config", "help", "optional", "prefixes", "marker", "ignore", "aliases", "also", "folder", "diffusers", "lora"});
  ComponentSpec out;
  out.name = name;
  in.set(node, "config", out.config_key);
  in.set(node, "prefixes", out.prefixes);
  if (std::ranges::find(out.prefixes, std::string()) == out.prefixes.end()) out.prefixes.emplace_back();
  const Node* marker = node.find("marker");
  if (marker == nullptr) in.wrong(node, where + " needs a `marker`, a key that proves that the component is there");
  out.marker = in.text(*marker, "marker");
  in.set(node, "optional", out.optional);
  in.set(node, "ignore", out.ignore);
  if (const Node* aliases = node.find("aliases"))
    for (const auto& [key, instead] : in.entries(*aliases, "aliases")) {
      check_holes(in, instead, key.text, in.text(instead, "an alias"));
      out.aliases[key.text] = instead.text;
    }
  in.set(node, "also", out.also);
  in.set(node, "folder", out.folder);
  if (const Node* rules = node.find("diffusers"))
    for (const Node& item : in.list(*rules, "diffusers"))
      for (KeyRule& part : read_rules(in, item)) out.diffusers.push_back(std::move(part));
  if (const Node* lora = node.find("lora")) out.lora = read_lora(in, *lora);
  return out;
}

CheckpointSpec read_spec(const std::string& yaml, const std::string& plugin) {
  const Strict in(fmt::format("plugin {}: checkpoint YAML", plugin), Code::plugin);
  const Node root = in.parse(yaml);
  in.check_fields(root, "the checkpoint",
                  {"components", "files", "settings", "experts", "arch", "model_kwargs", "musubi_tuner", "kohya_ss",
                   "published", "lora_loaders"});
  CheckpointSpec spec;
  const Node* components = root.find("components");
  if (components == nullptr || components->entries.empty())
    in.wrong(components == nullptr ? root : *components, "`components` must list at least one component");
  for (const auto& [name, node] : components->entries) spec.components.push_back(read_component(in, name.text, node));
  spec.keys = read_model_keys(in, root);
  spec.experts = read_experts(in, root, spec.keys);
  read_published(in, root);  // strictly, as the rest; who needs it reads it for itself
  spec.arch = read_arch_names(in, root, spec.keys);
  spec.model_kwargs = read_model_kwargs(in, root, spec.keys);
  spec.musubi = read_musubi_model(in, root, spec.keys);
  spec.kohya_ss = read_kohya_ss_model(in, root);
  if (const Node* loaders = root.find("lora_loaders"))
    for (const auto& [program, rules] : in.entries(*loaders, "lora_loaders"))
      spec.lora_loaders.push_back(read_lora_loader(in, spec, program.text, rules));
  return spec;
}

}  // namespace

// Options, the search for the model of a file and the model itself ask for those of all plugins, and a YAML takes
// longer to read than most else at the start of a run: each is read once.
CheckpointSpec CheckpointSpec::parse(const std::string& yaml, const std::string& plugin) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, CheckpointSpec> read;
  const std::lock_guard lock(mutex);
  const std::pair key{plugin, yaml};
  const auto known = read.find(key);
  return known != read.end() ? known->second : read.emplace(key, read_spec(yaml, plugin)).first->second;
}

const ComponentSpec* CheckpointSpec::component(const std::string& name) const {
  const auto found = std::ranges::find(components, name, &ComponentSpec::name);
  return found == components.end() ? nullptr : &*found;
}

}  // namespace lh
