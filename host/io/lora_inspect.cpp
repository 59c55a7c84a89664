// A row for each module, a line for people, an object for tools.
#include "io/lora_inspect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <tuple>

#include "core/error.h"
#include "io/foreign_lora.h"
#include "io/lora_delta.h"
#include "io/lora_names.h"

namespace lh {
namespace {

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

double norm_of(const LoraFile& file, const LoraEntry& entry, LoraPart part) {
  return norm(read_f32(file, entry.tensor(part)).as<float>());
}

// ||B A|| by the Gram matrices of both, rank x rank each, which needs no product of the size of the weight.
double product_norm(const HostTensor& left, const HostTensor& right) {
  const auto up = left.as<float>(), down = right.as<float>();
  const auto rank = static_cast<size_t>(right.desc.shape[0]);
  const size_t in = down.size() / rank, out = up.size() / rank;
  double sum = 0;
  for (size_t a = 0; a < rank; ++a)
    for (size_t b = 0; b < rank; ++b) {
      double rows = 0, columns = 0;
      for (size_t i = 0; i < in; ++i) rows += static_cast<double>(down[a * in + i]) * down[b * in + i];
      for (size_t o = 0; o < out; ++o) columns += static_cast<double>(up[o * rank + a]) * up[o * rank + b];
      sum += rows * columns;
    }
  return std::sqrt(std::max(sum, 0.0));
}

double delta_norm(const LoraFile& file, const LoraEntry& entry) {
  if (entry.kind == LoraKind::lora && !entry.has(LoraPart::mid))
    return std::abs(entry.scale()) *
           product_norm(read_f32(file, entry.tensor(LoraPart::up)), read_f32(file, entry.tensor(LoraPart::down)));
  if (!entry.changes_weight()) return norm_of(file, entry, LoraPart::diff_bias);
  const LoraDelta delta(file, entry);
  std::vector<float> row(static_cast<size_t>(entry.row_elements()));
  double sum = 0;
  for (int64_t r = 0; r < entry.rows(); ++r) {
    delta.row(r, row);
    for (const float v : row) sum += static_cast<double>(v) * v;
  }
  return std::sqrt(sum);
}

// "LoRA", "LoCon" where it is one on a convolution, and DoRA where it has a magnitude.
std::string kind_text(const LoraEntry& entry) {
  std::string kind(lora_kind_name(entry.kind));
  if (entry.kind == LoraKind::lora && entry.shape(LoraPart::down).rank() == 4) kind = "LoCon";
  return entry.has(LoraPart::magnitude) ? "DoRA of " + kind : kind;
}

// What a line of the table says of one module.
struct Row {
  std::string kind, dtype;
  int64_t rank = 0;
  double alpha = 0;
  bool has_alpha = false;
  std::string alpha_source;
  int64_t rows = 0, elements = 0;
  double down = 0, up = 0, delta = 0;
};

Row row_of(const LoraFile& file, const LoraEntry& entry) {
  Row row{.kind = kind_text(entry),
          .dtype = {},
          .rank = entry.rank,
          .alpha = entry.alpha.value_or(static_cast<double>(entry.rank)),
          .has_alpha = entry.alpha.has_value(),
          .alpha_source = entry.alpha_source,
          .rows = entry.rows(),
          .elements = entry.row_elements(),
          .delta = delta_norm(file, entry)};
  for (const auto& [part, tensor] : entry.parts)
    if (part != LoraPart::alpha) row.dtype = stored_dtype_name(tensor.stored->desc.dtype);
  if (entry.kind == LoraKind::lora) {
    row.down = norm_of(file, entry, LoraPart::down);
    row.up = norm_of(file, entry, LoraPart::up);
  }
  return row;
}

// "blocks.12.attn.to_q" is "blocks.#.attn.to_q".
std::string without_numbers(const std::string& name) {
  static const std::regex number("(^|[._])[0-9]+(?=[._]|$)");  // linear2 and attn1 are names
  return std::regex_replace(name, number, "$1#");
}

// How a model's names fit the file: modules by component and spelling.
struct Fit {
  std::string plugin;
  int64_t modules = 0;
  std::map<std::pair<std::string, std::string>, int64_t> by_spelling;
};

std::vector<Fit> fits(const LoraFile& file, const std::vector<ModelNames>& models) {
  std::vector<Fit> list;
  for (const ModelNames& model : models) {
    const LoraNamePatterns patterns(model.spec);
    Fit fit{model.plugin, 0, {}};
    for (const LoraEntry& entry : file.entries)
      if (const auto match = patterns.find(entry.name)) {
        ++fit.modules;
        ++fit.by_spelling[{match->component, match->spelling.text()}];
      }
    if (fit.modules > 0) list.push_back(std::move(fit));
  }
  std::ranges::stable_sort(list, std::greater{}, &Fit::modules);
  return list;
}

std::string fits_text(const LoraFile& file, const std::vector<ModelNames>& models) {
  std::string out;
  for (const Fit& fit : fits(file, models)) {
    out += fmt::format("  names of {}: {} of {} modules", fit.plugin, fit.modules, file.entries.size());
    for (const auto& [what, count] : fit.by_spelling)
      out += fmt::format("; {} as {} {}", what.first, what.second, count);
    out += "\n";
  }
  if (out.empty() && !models.empty() && !file.entries.empty()) out = "  names of no model whose plugin is installed\n";
  return out;
}

std::string alpha_text(const Row& row) {
  if (!row.has_alpha) return "none";
  return fmt::format("{:g}", row.alpha) + (row.alpha_source.empty() ? "" : " by its " + row.alpha_source);
}

template <typename Get>
std::string distinct(const std::vector<Row>& rows, Get get) {
  std::map<decltype(get(rows[0])), int64_t> counts;
  for (const Row& row : rows) ++counts[get(row)];
  if (counts.size() == 1) return fmt::format("{}", counts.begin()->first);
  std::string out;
  for (const auto& [value, count] : counts) out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", value, count);
  return out;
}

std::string range(double low, double high) {
  return low == high ? fmt::format("{:.4g}", low) : fmt::format("{:.3g}..{:.3g}", low, high);
}

std::string table(const LoraFile& file, const std::vector<Row>& rows) {
  using Alike = std::tuple<std::string, std::string, int64_t, double, int64_t, int64_t>;
  std::map<Alike, std::vector<size_t>> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    groups[{without_numbers(file.entries[i].name), r.kind, r.rank, r.alpha, r.rows, r.elements}].push_back(i);
  }
  size_t width = 6;
  const auto label = [&](const auto& group) {
    const auto& [alike, members] = group;
    return printable(members.size() == 1 ? file.entries[members[0]].name : std::get<0>(alike));
  };
  for (const auto& group : groups) width = std::max(width, label(group).size());
  std::string out = fmt::format("    {:<{}} {:>5} {:>8} {:>5} {:>7} {:>14} {:>18} {:>18} {:>18}\n", "module", width,
                                "count", "kind", "rank", "alpha", "changes", "|down|", "|up|", "|delta|");
  for (const auto& group : groups) {
    const auto& members = group.second;
    const Row& first = rows[members[0]];
    const auto spread = [&](double Row::*value) {
      const auto [low, high] = std::ranges::minmax(members, {}, [&](size_t i) { return rows[i].*value; });
      return range(rows[low].*value, rows[high].*value);
    };
    out += fmt::format("    {:<{}} {:>5} {:>8} {:>5} {:>7g} {:>14} {:>18} {:>18} {:>18}\n", label(group), width,
                       members.size(), first.kind, first.rank, first.alpha,
                       fmt::format("[{}, {}]", first.rows, first.elements), spread(&Row::down), spread(&Row::up),
                       spread(&Row::delta));
  }
  return out;
}

std::vector<Row> rows_of(const LoraFile& file) {
  std::vector<Row> rows;
  for (const LoraEntry& entry : file.entries) rows.push_back(row_of(file, entry));
  return rows;
}

// A file of a plugin's adapter: what there is without the plugin. Tensors by the ends of their keys, with how many
// there are of each.
std::map<std::string, int64_t> tensor_names(const LoraFile& file) {
  std::map<std::string, int64_t> counts;
  for (const StoredTensor& tensor : file.file->tensors()) ++counts[tensor.name.substr(tensor.name.rfind('.') + 1)];
  return counts;
}

std::string entry_of(const LoraFile& file, const char* key) {
  const auto found = file.file->metadata().find(key);
  return found == file.file->metadata().end() ? "" : found->second;
}

std::string foreign_text(const LoraFile& file) {
  std::string out = fmt::format("  adapter '{}' of a plugin, with {}\n", printable(entry_of(file, network_entry)),
                                printable(entry_of(file, network_options_entry)));
  for (const auto& [name, count] : tensor_names(file)) out += fmt::format("    {} {}\n", count, printable(name));
  return out;
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xc2 && next < 0xa0, inside_character = (byte & 0xc0) == 0x80;
    if (out.size() >= most && !inside_character) return out + fmt::format("... ({} bytes)", text.size());
    if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (c1) {
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string lora_text(const LoraFile& file, const std::vector<ModelNames>& models) {
  if (is_foreign(*file.file)) return foreign_text(file);
  std::string out;
  if (!file.entries.empty()) {
    const std::vector<Row> rows = rows_of(file);
    out += fmt::format("  LoRA: {} modules; {}, rank {}, alpha {}, {}\n", rows.size(),
                       distinct(rows, [](const Row& r) { return r.kind; }),
                       distinct(rows, [](const Row& r) { return r.rank; }), distinct(rows, alpha_text),
                       distinct(rows, [](const Row& r) { return r.dtype; }));
    out += fits_text(file, models) + table(file, rows);
  }
  for (const LoraProblem& problem : file.problems)
    out += fmt::format("    not usable: {}: {}\n", printable(problem.key), problem.why);
  return out;
}

nlohmann::json lora_json(const LoraFile& file, const std::vector<ModelNames>& models) {
  using nlohmann::json;
  json out{{"modules", json::array()},
           {"problems", json::array()},
           {"names_of", json::array()},
           {"metadata", file.file->metadata()}};
  if (is_foreign(*file.file)) {
    out["adapter"] = {{"id", entry_of(file, network_entry)},
                      {"options", entry_of(file, network_options_entry)},
                      {"tensors", tensor_names(file)}};
    return out;
  }
  for (const LoraEntry& entry : file.entries) {
    const Row row = row_of(file, entry);
    json module{{"name", entry.name},     {"kind", row.kind}, {"rank", row.rank},
                {"dtype", row.dtype},     {"rows", row.rows}, {"elements_of_a_row", row.elements},
                {"delta_norm", row.delta}};
    module["alpha"] = row.has_alpha ? json(row.alpha) : json(nullptr);
    if (!row.alpha_source.empty()) module["alpha_source"] = row.alpha_source;
    if (entry.kind == LoraKind::lora) module["down_norm"] = row.down, module["up_norm"] = row.up;
    out["modules"].push_back(std::move(module));
  }
  for (const LoraProblem& problem : file.problems)
    out["problems"].push_back({{"key", problem.key}, {"why", problem.why}});
  for (const Fit& fit : fits(file, models)) {
    json names{{"plugin", fit.plugin}, {"modules", fit.modules}, {"spellings", json::array()}};
    for (const auto& [what, count] : fit.by_spelling)
      names["spellings"].push_back({{"component", what.first}, {"names", what.second}, {"modules", count}});
    out["names_of"].push_back(std::move(names));
  }
  return out;
}

}  // namespace lh
