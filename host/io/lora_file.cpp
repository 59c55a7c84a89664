// Writes LoRA files: kohya's and ComfyUI's spellings as trained, or the diffusers one with fused modules split.
#include "io/lora_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "io/key_map.h"
#include "io/lora_names.h"
#include "io/lora_seal.h"

namespace lh {
namespace {

using Tensors = std::vector<NamedTensor>;

constexpr const char* magnitude_key = "dora_scale";

int64_t rank_of(const LoraModule& module) { return module.has_pair() ? module.down.desc.shape[0] : module.rank; }
int64_t in_features(const LoraModule& module) { return module.down.desc.shape.with(0, 1).numel(); }

void check(const LoraModule& module) {
  for (const auto& [key, tensor] : module.others)
    if (tensor.desc.dtype != DType::f32)
      fail(Code::internal, "LoRA module \"{}\": {} is {}, expected float32", module.name, key, tensor.desc.text());
  if (!module.has_pair() && !module.others.empty()) return;
  const Desc &down = module.down.desc, &up = module.up.desc;
  const bool shapes = down.shape.rank() >= 2 && up.shape.rank() == down.shape.rank() && rank_of(module) > 0 &&
                      up.shape.with(0, 1).numel() == rank_of(module) && in_features(module) > 0;
  if (down.dtype != DType::f32 || up.dtype != DType::f32 || !shapes)
    fail(Code::internal, "LoRA module \"{}\": down {} and up {}, expected float32 [rank, in, ...] and [out, rank, ...]",
         module.name, down.text(), up.text());
}

// A module named without its component.
struct OwnModule {
  const LoraModule* values = nullptr;
  std::string name;
};

// A component's modules, and its names in files.
struct Component {
  const ComponentSpec* spec = nullptr;
  std::vector<OwnModule> modules;
};

std::vector<Component> by_component(const std::vector<LoraModule>& modules, const CheckpointSpec& spec) {
  std::vector<Component> list;
  for (const ComponentSpec& component : spec.components) list.push_back({&component, {}});
  for (const LoraModule& module : modules) {
    const size_t colon = module.name.find(':');
    const std::string name = colon == std::string::npos ? "denoiser" : module.name.substr(0, colon);
    const auto found = std::ranges::find(list, name, [](const Component& c) { return c.spec->name; });
    if (found == list.end())
      fail(Code::plugin, "LoRA module \"{}\": the checkpoint YAML has no component `{}`", module.name, name);
    found->modules.push_back({&module, colon == std::string::npos ? module.name : module.name.substr(colon + 1)});
  }
  std::erase_if(list, [](const Component& c) { return c.modules.empty(); });
  return list;
}

// How a component's names are spelled in a format.
LoraSpelling spelling_of(const Component& component, const std::string& format) {
  std::string others;
  for (const char* other : lora_formats)
    if (!format_spellings(component.spec->lora, other).empty())
      others += (others.empty() ? "" : " or ") + std::string(other);
  if (const std::vector<LoraSpelling> known = format_spellings(component.spec->lora, format); !known.empty())
    return known.front();
  fail(Code::config, "save.format: {}: modules of `{}` have no names in it. {}", format, component.spec->name,
       others.empty() ? "They cannot be saved as a LoRA file at all" : fmt::format("Use save.format {}", others));
}

// The norms of a DoRA's rows, [out]; nothing where the module has none.
std::vector<float> row_magnitudes(const LoraModule& module) {
  for (const auto& [key, tensor] : module.others) {
    if (key != magnitude_key) continue;
    if (tensor.desc.shape[0] != module.up.desc.shape[0])
      fail(
          Code::config,
          "save.format: diffusers: it has DoRA with norms of outputs only. Set network.network_kwargs.wd_on_out: true, "
          "or use save.format kohya or comfyui");
    return {tensor.as<float>().begin(), tensor.as<float>().end()};
  }
  return {};
}

// Throws where diffusers has no such adapter.
void require_plain(const LoraModule& module) {
  for (const auto& [key, tensor] : module.others)
    if (key != magnitude_key || !module.has_pair())
      fail(Code::config,
           "save.format: diffusers: it has no tensor `{}`, which {} is made of. Use save.format kohya or comfyui, or "
           "network.type lora",
           key, module.name);
}

// The tensors and alpha as they were trained.
void add_native(const Component& component, const LoraSpelling& spelling, DType dtype, Tensors& out) {
  const KeyMap map(component.spec->diffusers);
  for (const auto& [values, own_name] : component.modules) {
    const LoraModule& module = *values;
    const auto theirs = map.diffusers(own_name, 0);
    const bool whole = theirs && theirs->modules.size() == 1;
    const std::string name =
        LoraPlace{.native = own_name, .diffusers = whole ? theirs->modules.front() : ""}.spelled(spelling);
    if (name.empty())
      fail(Code::data, "LoRA module \"{}\" has no one name in the form {}. Use save.format comfyui", own_name,
           spelling.text());
    if (module.has_pair()) {
      out.push_back({name + ".lora_down.weight", converted(module.down, dtype)});
      out.push_back({name + ".lora_up.weight", converted(module.up, dtype)});
    }
    for (const auto& [key, tensor] : module.others) out.push_back({name + "." + key, converted(tensor, dtype)});
    if (module.alpha == 0) continue;
    const auto alpha = static_cast<float>(module.alpha);
    out.push_back({name + ".alpha", HostTensor::from_floats(Shape{}, std::span(&alpha, 1))});
  }
}

// Rows in the order of the diffusers layer, which may have their halves the other way round.
void swap_halves(const LoraModule& module, std::vector<float>& rows) {
  if (module.up.desc.shape[0] % 2 != 0)
    fail(Code::data, "LoRA module \"{}\": {} rows have no two halves", module.name, module.up.desc.shape[0]);
  std::rotate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end());
}

// B = up * alpha / rank.
std::vector<float> folded_up(const LoraModule& module) {
  const auto up = module.up.as<float>();
  const auto factor = static_cast<float>(module.alpha / static_cast<double>(rank_of(module)));
  std::vector<float> values(up.begin(), up.end());
  for (float& v : values) v *= factor;
  return values;
}

// The diffusers loader takes one rank for all modules: narrower ones are padded with zeros, which changes nothing.
HostTensor padded_down(const LoraModule& module, int64_t rank, bool as_matrix) {
  const Shape shape = module.down.desc.shape.with(0, rank);
  HostTensor out(Desc{DType::f32, as_matrix ? Shape{rank, in_features(module)} : shape});
  std::memcpy(out.data.data(), module.down.data.data(), module.down.data.size());
  return out;
}

HostTensor padded_up(const LoraModule& module, std::span<const float> values, int64_t rows, int64_t rank,
                     bool as_matrix) {
  const Shape shape = module.up.desc.shape.with(0, rows).with(1, rank);
  HostTensor out(Desc{DType::f32, as_matrix ? Shape{rows, rank} : shape});
  const int64_t own = rank_of(module);
  for (int64_t row = 0; row < rows; ++row)
    std::ranges::copy(values.subspan(static_cast<size_t>(row * own), static_cast<size_t>(own)),
                      out.as<float>().begin() + row * rank);
  return out;
}

void add_diffusers(const Component& component, const std::string& prefix, DType dtype, Tensors& out) {
  const KeyMap map(component.spec->diffusers);
  int64_t rank = 0;
  for (const auto& [values, own_name] : component.modules) {
    require_plain(*values);
    rank = std::max(rank, rank_of(*values));
  }
  for (const auto& [values, own_name] : component.modules) {
    const LoraModule& module = *values;
    const int64_t rows = module.up.desc.shape[0], in = in_features(module);
    const auto target = map.diffusers(own_name, rows % in == 0 ? rows / in : 0);
    if (!target)
      fail(Code::data,
           "LoRA module \"{}\" has no name in the diffusers format. Use save.format kohya, or leave it out of the "
           "targets",
           own_name);
    const Assemble how = target->rule == nullptr ? Assemble::copy : target->rule->assemble;
    if (how == Assemble::transpose)
      fail(Code::data, "LoRA module \"{}\" is transposed in the diffusers format: use save.format kohya", own_name);
    const bool matrix = target->rule != nullptr && target->rule->conv1x1;
    std::vector<float> up = folded_up(module), magnitudes = row_magnitudes(module);
    if (how == Assemble::swap_halves) {
      swap_halves(module, up);
      if (!magnitudes.empty()) swap_halves(module, magnitudes);
    }
    const std::vector<int64_t> parts = part_rows(rows, in, target->modules.size());
    if (parts.empty())
      fail(Code::data, "LoRA module \"{}\": {} rows do not split into {} parts for the diffusers format", own_name,
           rows, target->modules.size());
    std::span<const float> rest(up), norms(magnitudes);
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string name = prefix + target->modules[i];
      out.push_back({name + ".lora_A.weight", converted(padded_down(module, rank, matrix), dtype)});
      out.push_back({name + ".lora_B.weight", converted(padded_up(module, rest, parts[i], rank, matrix), dtype)});
      rest = rest.subspan(static_cast<size_t>(parts[i] * rank_of(module)));
      if (norms.empty()) continue;
      const bool conv = module.up.desc.shape.rank() == 4 && !matrix;
      const HostTensor own = HostTensor::from_floats(conv ? Shape{1, parts[i], 1, 1} : Shape{parts[i]},
                                                     norms.first(static_cast<size_t>(parts[i])));
      out.push_back({name + ".lora_magnitude_vector", converted(own, dtype)});
      norms = norms.subspan(static_cast<size_t>(parts[i]));
    }
  }
}

Tensors spelled(const std::vector<LoraModule>& modules, const CheckpointSpec& spec, const std::string& format,
                DType dtype) {
  Tensors out;
  for (const Component& component : by_component(modules, spec)) {
    const LoraSpelling spelling = spelling_of(component, format);
    if (format == "diffusers")
      add_diffusers(component, spelling.prefix, dtype, out);
    else
      add_native(component, spelling, dtype, out);
  }
  return out;
}

// One text for a number that all modules share, "Dynamic" (as kohya's tools write) otherwise.
template <typename Get>
std::string common(const std::vector<LoraModule>& modules, Get get) {
  const bool same = std::ranges::all_of(modules, [&](const LoraModule& m) { return get(m) == get(modules.front()); });
  return same ? fmt::format("{}", get(modules.front())) : "Dynamic";
}

// Bytes [begin, begin + out.size()) of header and tensors written one after the other.
std::string file_slice(const std::string& header, const Tensors& tensors, int64_t begin, int64_t end) {
  std::string slice;
  int64_t at = 0;
  const auto take = [&](const char* data, int64_t size) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + size);
    if (from < to) slice.append(data + (from - at), static_cast<size_t>(to - from));
    at += size;
  };
  take(header.data(), static_cast<int64_t>(header.size()));
  for (const NamedTensor& t : tensors)
    take(reinterpret_cast<const char*>(t.tensor.data.data()), static_cast<int64_t>(t.tensor.data.size()));
  return slice;
}

// Hashes that model managers look up, over this file as it would be with only its ss_ entries.
void add_hashes(std::map<std::string, std::string>& metadata, const Tensors& tensors) {
  std::map<std::string, std::string> training;
  std::ranges::copy_if(metadata, std::inserter(training, training.end()),
                       [](const auto& item) { return item.first.starts_with("ss_"); });
  std::vector<std::pair<std::string, Desc>> entries;
  Sha256 data;
  for (const NamedTensor& t : tensors) {
    entries.emplace_back(t.name, t.tensor.desc);
    data.update(t.tensor.data);
  }
  metadata["sshs_model_hash"] = data.hex();
  metadata["sshs_legacy_hash"] =
      sha256_hex(file_slice(safetensors_header(entries, training), tensors, 0x100000, 0x110000)).substr(0, 8);
}

}  // namespace

std::map<std::string, std::string> network_metadata(const std::vector<LoraModule>& modules) {
  std::map<std::string, std::string> metadata{
      {"ss_network_module", "networks.lora"},
      {"ss_network_dim", common(modules, [](const LoraModule& m) { return rank_of(m); })},
      {"ss_network_alpha", common(modules, [](const LoraModule& m) { return m.alpha; })},
      {"ss_network_args", "{}"},
      {"ss_v2", "False"},
      {"modelspec.sai_model_spec", "1.0.1"},
  };
  const auto conv = std::ranges::find_if(modules, [](const LoraModule& m) {
    return m.has_pair() && m.down.desc.shape.rank() == 4 && m.down.desc.shape[2] * m.down.desc.shape[3] > 1;
  });
  if (conv != modules.end())
    metadata["ss_network_args"] =
        fmt::format(R"({{"conv_dim": "{}", "conv_alpha": "{}"}})", rank_of(*conv), conv->alpha);
  return metadata;
}

void check_lora_names(const std::vector<LoraModule>& modules, const CheckpointSpec& spec, const std::string& format) {
  std::set<std::string> names;
  for (const NamedTensor& t : spelled(modules, spec, format, DType::f32))
    if (!names.insert(t.name).second)
      fail(Code::plugin,
           "save.format: {}: two modules are called '{}' in it; the plugin's key map must keep them apart", format,
           t.name);
}

void write_lora(const std::filesystem::path& path, const std::vector<LoraModule>& modules, const CheckpointSpec& spec,
                const std::string& format, DType dtype, const LoraMetadata& metadata) {
  if (modules.empty()) fail(Code::internal, "{}: a LoRA without modules", path.string());
  if (!is_float(dtype)) fail(Code::internal, "{}: a LoRA of type {}", path.string(), dtype_name(dtype));
  for (const LoraModule& module : modules) check(module);
  if (format != "kohya" && format != "comfyui" && format != "diffusers")
    fail(Code::config, "save.format: {}, expected kohya, comfyui or diffusers", format);
  auto entries = network_metadata(modules);
  for (const auto& [key, value] : metadata.entries) entries[key] = value;
  save_lora(path, spelled(modules, spec, format, dtype), std::move(entries));
}

void save_lora(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
               std::map<std::string, std::string> metadata) {
  // Wide types first, so that every tensor is aligned: some readers refuse a float32 at an odd offset.
  std::ranges::stable_sort(tensors, std::greater{},
                           [](const NamedTensor& t) { return dtype_size(t.tensor.desc.dtype); });
  add_hashes(metadata, tensors);
  std::vector<TensorToWrite> list;
  for (const NamedTensor& t : tensors) {
    list.push_back({t.name, t.tensor.desc, t.tensor.data.data()});
    const int64_t elements = t.tensor.desc.shape.numel();
    if (const int64_t bad = count_non_finite(t.tensor.desc.dtype, t.tensor.data.data(), elements); bad > 0)
      fail(Code::numeric,
           "{}: {} of {} values of `{}` are a NaN or an infinity as {}. Nothing was written, what was there before is "
           "untouched. {}",
           path.string(), bad, elements, t.name, dtype_name(t.tensor.desc.dtype),
           t.tensor.desc.dtype == DType::f16
               ? "float16 ends at 65504: set save.dtype: bf16 (--save-dtype), and go on with --resume where it is a run"
               : "Lower train.lr");
  }
  seal_lora(list, metadata);
  write_safetensors(path, list, metadata);
}

}  // namespace lh
