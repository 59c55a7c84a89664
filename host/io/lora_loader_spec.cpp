// Strict YAML to LoraLoader, rule by rule.
#include "io/lora_loader_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "io/lora_keys.h"
#include "io/lora_names.h"

namespace lh {
namespace {

using yaml::Kind;
using yaml::Node;
using yaml::Strict;

LoraSpelling read_spelling(const Strict& in, const Node& node, const std::string& name) {
  if (const auto found = parse_spelling(name)) return *found;
  in.wrong(node, fmt::format("name `{}` must be a prefix and one of {{native}}, {{native_}}, {{diffusers}}, "
                             "{{diffusers_}}, {{processor}}",
                             name));
}

void add_family(const Strict& in, const Node& node, const std::string& name, std::set<std::string>& out) {
  const std::vector<std::string_view> pairs = lora_pair_families(), all = lora_families();
  if (name == "pairs")
    out.insert(pairs.begin(), pairs.end());
  else if (std::ranges::find(all, name) != all.end())
    out.insert(name);
  else
    in.wrong(node, fmt::format("tensors `{}` is unknown; known: pairs, {}", name, fmt::join(all, ", ")));
}

std::vector<Pattern> read_patterns(const Strict& in, const Node& rule, std::string_view field) {
  const Node* node = rule.find(field);
  if (node == nullptr) return {};
  const std::string what(field);
  if (node->kind == Kind::scalar) return {in.pattern(*node, what)};
  std::vector<Pattern> all;
  for (const Node& item : in.list(*node, what)) all.push_back(in.pattern(item, "an item of " + what));
  return all;
}

LoraLoaderRule read_rule(const Strict& in, const CheckpointSpec& spec, const Node& node) {
  const std::string where = "a lora_loaders rule";
  in.check_fields(
      node, where,
      {"components", "names", "tensors", "only", "except", "not_beside", "not_of", "full_size", "one_rank"});
  const Node &components = in.need(node, "components", where), &names = in.need(node, "names", where),
             &tensors = in.need(node, "tensors", where);
  LoraLoaderRule out;
  out.components = in.texts(components, "components");
  for (const std::string& name : out.components)
    if (spec.component(name) == nullptr) in.wrong(components, fmt::format("there is no component `{}`", name));
  for (const std::string& name : in.texts(names, "names")) out.names.push_back(read_spelling(in, names, name));
  for (const std::string& name : in.texts(tensors, "tensors")) add_family(in, tensors, name, out.tensors);
  out.only = read_patterns(in, node, "only");
  out.except = read_patterns(in, node, "except");
  in.set(node, "not_beside", out.not_beside);
  in.set(node, "not_of", out.not_of);
  in.set(node, "one_rank", out.one_rank);
  if (const Node* shapes = node.find("full_size"))
    for (const auto& [weight, dims] : in.entries(*shapes, "full_size")) {
      const std::vector<int64_t> shape = in.integers(dims, "a shape", {.low = 0});
      if (shape.empty()) in.wrong(dims, "a shape must be a list of integers, found none");
      out.full_size.emplace(weight.text, Shape(shape));
    }
  return out;
}

}  // namespace

LoraLoader read_lora_loader(const Strict& in, const CheckpointSpec& spec, const std::string& program,
                            const Node& rules) {
  LoraLoader out{program, {}};
  for (const Node& item : in.list(rules, fmt::format("`{}`", program))) out.rules.push_back(read_rule(in, spec, item));
  return out;
}

}  // namespace lh
