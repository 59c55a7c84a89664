#include "graph/fingerprint.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "graph/op.h"

namespace lh {
namespace {

// Each part with its length in front, so that no two lists of parts read the same.
void add(Sha256& hash, std::string_view part) {
  hash.update(fmt::format("{}:", part.size()));
  hash.update(part);
}

std::string text(const Attrs::Item& item) {
  if (const auto* list = std::get_if<std::vector<int64_t>>(&item)) return fmt::format("[{}]", fmt::join(*list, ","));
  if (const auto* real = std::get_if<double>(&item)) return fmt::format("{:a}", *real);
  if (const auto* number = std::get_if<int64_t>(&item)) return fmt::format("{}", *number);
  return "\"" + std::get<std::string>(item);
}

}  // namespace

std::string fingerprint(const Graph& graph) {
  Sha256 hash;
  add(hash, "graph/1");
  add(hash, dtype_name(graph.compute));
  for (uint32_t id = 1; id <= graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(Value{id});
    add(hash,
        fmt::format("{} {} {} {}", static_cast<int>(info.kind), info.desc.text(), info.channels_last, info.scale.id));
    add(hash, info.name);
    const auto* bytes = reinterpret_cast<const char*>(info.constant.data.data());
    add(hash, std::string_view(bytes, info.constant.data.size()));
  }
  for (const Node& node : graph.nodes) {
    add(hash, node.op->name);
    for (const Value v : node.inputs) add(hash, fmt::format("in {}", v.id));
    for (const Value v : node.outputs) add(hash, fmt::format("out {}", v.id));
    for (const auto& [name, item] : node.attrs.items()) {
      add(hash, name);
      add(hash, text(item));
    }
  }
  for (const auto& [name, value] : graph.outputs) add(hash, fmt::format("{} {}", value.id, name));
  return hash.hex();
}

}  // namespace lh
