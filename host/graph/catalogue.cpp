#include "graph/catalogue.h"

#include <algorithm>

#include "core/error.h"

namespace lh {

const std::vector<CatalogueEntry>& op_catalogue() {
  static const std::vector<CatalogueEntry> catalogue = {
#include "lora_host/op_catalogue.gen.inc"
  };
  return catalogue;
}

const CatalogueEntry* find_in_catalogue(std::string_view name) {
  const auto& all = op_catalogue();
  const auto it = std::ranges::find_if(all, [&](const CatalogueEntry& e) { return name == e.name; });
  return it == all.end() ? nullptr : &*it;
}

namespace {

bool fits(char type, const Attrs::Item& item) {
  switch (type) {
    case 'i':
    case 'b': return std::holds_alternative<int64_t>(item);
    case 'f': return std::holds_alternative<double>(item) || std::holds_alternative<int64_t>(item);
    case 's': return std::holds_alternative<std::string>(item);
    default: return std::holds_alternative<std::vector<int64_t>>(item);
  }
}

}  // namespace

Attrs checked_attrs(const CatalogueEntry& entry, Attrs given, size_t input_count, size_t output_count) {
  const auto inputs = static_cast<int>(input_count);
  if (inputs < entry.min_inputs || (entry.max_inputs >= 0 && inputs > entry.max_inputs))
    fail(Code::plugin, "{} takes {} to {} inputs, got {}", entry.name, entry.min_inputs,
         entry.max_inputs < 0 ? "any number of" : std::to_string(entry.max_inputs), inputs);
  for (const auto& [name, item] : given.items()) {
    const auto attr =
        std::ranges::find_if(entry.attrs, [&name = name](const CatalogueAttr& a) { return name == a.name; });
    if (attr == entry.attrs.end()) fail(Code::plugin, "{} has no attribute '{}'", entry.name, name);
    if (!fits(attr->type, item)) fail(Code::plugin, "{}: attribute '{}' has the wrong type", entry.name, name);
  }
  for (const CatalogueAttr& attr : entry.attrs)
    if (attr.required && !given.has(attr.name))
      fail(Code::plugin, "{} needs the attribute '{}'", entry.name, attr.name);
  for (const auto& [name, item] : entry.defaults)
    if (!given.has(name)) given.set(name, item);
  const size_t outputs =
      entry.outputs >= 0 ? static_cast<size_t>(entry.outputs) : given.list(entry.outputs_attr).size();
  if (output_count != outputs)
    fail(Code::plugin, "{} gives {} results, {} were asked for", entry.name, outputs, output_count);
  return given;
}

}  // namespace lh
