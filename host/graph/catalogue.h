// The op catalogue as the host checks it: generated from sdk/ops.yaml.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace lh {

struct CatalogueAttr {
  const char* name;
  char type;  // i, f, b, s, l (list of integers)
  bool required;
};

struct CatalogueEntry {
  const char* name;
  int min_inputs, max_inputs;  // max -1 = any number
  std::vector<CatalogueAttr> attrs;
  std::vector<std::pair<const char*, Attrs::Item>> defaults;
  bool grad;
  int outputs;  // -1: as many as the list attribute outputs_attr has entries
  const char* outputs_attr;
};

const std::vector<CatalogueEntry>& op_catalogue();
const CatalogueEntry* find_in_catalogue(std::string_view name);
// Checks a plugin's use of an op and fills in defaults; throws lh::Error(Code::plugin) naming op and attribute.
Attrs checked_attrs(const CatalogueEntry& entry, Attrs given, size_t input_count, size_t output_count);

}  // namespace lh
