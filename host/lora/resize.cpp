#include "lora/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "io/foreign_lora.h"
#include "io/lora_scale.h"
#include "lora/batches.h"
#include "lora/input.h"

namespace lh {
namespace {

using enum LoraPart;

constexpr std::string_view instead = "lora-host merge --into lora --rank N makes a LoRA of it";

bool is_pair(const LoraEntry& entry) { return entry.kind == LoraKind::lora; }

void require_pairs(const LoraFile& file) {
  if (is_foreign(*file.file))
    fail(Code::data, "{}: its tensors are those of adapter '{}' of a plugin, which have no rank to change. {}",
         file.file->path().string(), file.file->metadata().at(network_entry), instead);
  std::vector<LoraProblem> wrong;
  for (const LoraEntry& entry : file.entries) {
    const bool whole = entry.kind == LoraKind::full && (!entry.has(diff) || entry.shape(diff).rank() == 1);
    if (!is_pair(entry) && !whole)
      wrong.push_back({entry.name, fmt::format("{} is no pair of matrices", lora_kind_name(entry.kind))});
  }
  if (!wrong.empty())
    fail(Code::data, "{}: {} of its modules cannot be resized:{}\n{}", file.file->path().string(), wrong.size(),
         listed(wrong), instead);
}

bool scale_beside(const LoraEntry& entry) { return !entry.alpha_source.empty(); }

// Of the change as a matrix; a Tucker core may have more than the rank that divides alpha.
int64_t own_rank(const LoraEntry& entry) { return entry.has(mid) ? entry.shape(mid)[0] : entry.rank; }

// [rank, in, kh, kw] of a matrix [rank, in kh kw]; the taps are those of the core, where there is one.
Shape down_shape(const LoraEntry& entry, int64_t rank) {
  Shape shape = entry.shape(down).with(0, rank);
  if (entry.has(mid))
    for (int64_t axis = 2; axis < shape.rank(); ++axis) shape = shape.with(axis, entry.shape(mid)[axis]);
  return shape;
}

// A LoraModule that has the pair and nothing else: what the metadata says of it.
LoraModule module_of(const LoraEntry& entry, const LowRank& found) {
  const int64_t rank = found.product.rank;
  return {.name = entry.name,
          .down = HostTensor::from_floats(down_shape(entry, rank), found.product.right),
          .up = HostTensor::from_floats(entry.shape(up).with(1, rank), found.product.left),
          .alpha = (entry.has(alpha) ? entry.scale() : 1) * static_cast<double>(rank)};
}

// Narrower pairs filled up with zeros to the widest of their component: whoever reads a file without alphas gives all
// modules of one the scale of the first.
void pad(std::vector<LoraModule>& modules) {
  const auto component = [](const LoraModule& m) { return m.name.substr(0, m.name.find('.')); };
  std::map<std::string, int64_t> widest;
  for (const LoraModule& m : modules) widest[component(m)] = std::max(widest[component(m)], m.down.desc.shape[0]);
  for (LoraModule& m : modules) {
    const int64_t own = m.down.desc.shape[0], rank = widest[component(m)], rows = m.up.desc.shape[0];
    HostTensor wide(Desc{DType::f32, m.down.desc.shape.with(0, rank)});
    std::memcpy(wide.data.data(), m.down.data.data(), m.down.data.size());
    HostTensor tall(Desc{DType::f32, m.up.desc.shape.with(1, rank)});
    for (int64_t r = 0; r < rows; ++r)
      std::ranges::copy(m.up.as<float>().subspan(static_cast<size_t>(r * own), static_cast<size_t>(own)),
                        tall.as<float>().begin() + r * rank);
    m.down = std::move(wide), m.up = std::move(tall), m.alpha = static_cast<double>(rank);
  }
}

HostTensor stored_or(const LoraFile& file, const StoredTensor& tensor, std::optional<DType> dtype) {
  const HostTensor own = file.file->read(tensor.name);
  return dtype ? converted(own, *dtype) : own;
}

// up times the scale, where nothing in the file will say it.
void fold_scale(const LoraEntry& entry, HostTensor& values) {
  const auto scale = static_cast<float>(entry.scale());
  for (float& v : values.as<float>()) v *= scale;
}

}  // namespace

ResizedLora resize_lora(const LoraFile& file, const RankChoice& choice, std::optional<DType> dtype) {
  require_pairs(file);
  std::vector<const LoraEntry*> pairs;
  for (const LoraEntry& entry : file.entries)
    if (is_pair(entry)) pairs.push_back(&entry);
  ResizedLora out;
  std::vector<LoraModule> modules(pairs.size());
  const auto read = [&](size_t i) { return lora_of(file, *pairs[i]); };
  const auto compute = [&](const LoraProduct& product) { return low_rank(product, choice); };
  in_batches("resize", pairs.size(), read, compute, [&](size_t i, LowRank found) {
    const LoraEntry& entry = *pairs[i];
    out.lines.push_back(
        {entry.name, own_rank(entry), found.product.rank, found.kept, found.norm * std::abs(entry.scale())});
    modules[i] = module_of(entry, found);
    if (!entry.has(alpha)) fold_scale(entry, modules[i].up);
  });
  if (std::ranges::none_of(pairs, [](const LoraEntry* entry) { return entry->has(alpha); })) pad(modules);
  std::map<std::string, const LoraModule*> by_name;
  for (const LoraModule& module : modules) by_name[module.name] = &module;
  for (const LoraEntry& entry : file.entries)
    for (const auto& [part, tensor] : entry.parts) {
      const StoredTensor& own = *tensor.stored;
      const DType type = dtype.value_or(own.desc.dtype);
      if (!is_pair(entry) || part == magnitude || part == diff_bias) {
        out.tensors.push_back({own.name, stored_or(file, own, dtype)});
        continue;
      }
      const LoraModule& module = *by_name.at(entry.name);
      const auto value = static_cast<float>(module.alpha);
      if (part == down) out.tensors.push_back({own.name, converted(module.down, type)});
      if (part == up) out.tensors.push_back({own.name, converted(module.up, type)});
      if (part == alpha)
        out.tensors.push_back({own.name, HostTensor::from_floats(own.desc.shape, std::span(&value, 1))});
    }
  out.metadata = carried_metadata(*file.file);
  out.metadata.erase(network_layers_entry);  // of other ranks
  if (!modules.empty()) out.metadata.merge(network_metadata(modules));
  return out;
}

ResizedLora retype_lora(const LoraFile& file, DType dtype) {
  ResizedLora out;
  std::map<std::string, const LoraEntry*> folded;  // up matrices whose scale a file beside this one says
  for (const LoraEntry& entry : file.entries)
    if (scale_beside(entry) && entry.alpha_source != adapter_metadata_entry) folded[entry.tensor(up).name] = &entry;
  for (const StoredTensor& tensor : file.file->tensors()) {
    const auto key = split_lora_key(tensor.name);
    HostTensor values = file.file->read(tensor.name);
    if (key && key->part == alpha) {
      out.tensors.push_back({tensor.name, std::move(values)});
      continue;
    }
    values = converted(values, DType::f32);
    if (const auto found = folded.find(tensor.name); found != folded.end()) fold_scale(*found->second, values);
    out.tensors.push_back({tensor.name, converted(values, dtype)});
  }
  const auto& given = file.file->metadata();
  out.metadata = carried_metadata(*file.file);
  for (const char* key : {"ss_network_dim", "ss_network_alpha", "ss_network_args", "ss_network_module",
                          adapter_metadata_entry})  // ranks and alphas are the same
    if (const auto found = given.find(key); found != given.end()) out.metadata[key] = found->second;
  return out;
}

}  // namespace lh
