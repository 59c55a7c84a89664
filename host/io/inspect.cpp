#include "io/inspect.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/error.h"
#include "io/lora_file.h"
#include "io/weight_files.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr size_t metadata_width = 200;  // longer values are cut

// Metadata comes from strangers: nothing of it may steer a terminal.
std::string escaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xc2 && next < 0xa0, inside_character = (byte & 0xc0) == 0x80;
    if (out.size() >= metadata_width && !inside_character) return out + fmt::format("... ({} bytes)", text.size());
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

std::string size_text(int64_t bytes) {
  static constexpr std::array<const char*, 4> units{"bytes", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} {} ({} bytes)", value, units[unit], bytes);
}

std::string summary(const std::vector<FilePtr>& files) {
  std::map<std::string_view, int64_t> dtypes;
  int64_t tensors = 0, parameters = 0, bytes = 0;
  for (const FilePtr& file : files)
    for (const StoredTensor& tensor : file->tensors()) {
      ++dtypes[stored_dtype_name(tensor.desc.dtype)];
      ++tensors;
      parameters = checked_add(parameters, tensor.desc.shape.numel());
      bytes = checked_add(bytes, tensor.desc.bytes());
    }
  std::string counts;
  for (const auto& [name, count] : dtypes) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name);
  return fmt::format("  {} tensors ({}), {} parameters, {}\n", tensors, counts, parameters, size_text(bytes));
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) out += fmt::format("    {}: {}\n", escaped(key), escaped(value));
  return metadata.empty() ? "  no metadata\n" : "  metadata\n" + out;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// ||up down|| by the Gram matrices of both, rank x rank each.
double delta_norm(const LoraModule& module) {
  const auto down = module.down.as<float>(), up = module.up.as<float>();
  const auto rank = static_cast<size_t>(module.down.desc.shape[0]);
  const size_t in = down.size() / std::max<size_t>(rank, 1), out = up.size() / std::max<size_t>(rank, 1);
  double sum = 0;
  for (size_t a = 0; a < rank; ++a)
    for (size_t b = 0; b < rank; ++b) {
      double rows = 0, columns = 0;
      for (size_t i = 0; i < in; ++i) rows += static_cast<double>(down[a * in + i]) * down[b * in + i];
      for (size_t o = 0; o < out; ++o) columns += static_cast<double>(up[o * rank + a]) * up[o * rank + b];
      sum += rows * columns;
    }
  return rank == 0 ? 0 : std::abs(module.alpha) / static_cast<double>(rank) * std::sqrt(std::max(sum, 0.0));
}

std::string lora_text(const fs::path& path) {
  const LoraFile lora = read_lora(path);
  std::set<int64_t> ranks;
  std::set<double> alphas;
  size_t width = 6;
  for (const LoraModule& module : lora.modules) {
    ranks.insert(module.down.desc.shape[0]);
    alphas.insert(module.alpha);
    width = std::max(width, escaped(module.name).size());
  }
  std::string out = fmt::format("  LoRA: {} spelling, {} modules, rank {}, alpha {}\n", lora.spelling,
                                lora.modules.size(), fmt::join(ranks, " "), fmt::join(alphas, " "));
  out += fmt::format("    {:<{}}  {:>5} {:>7} {:>11} {:>11} {:>11}\n", "module", width, "rank", "alpha", "|down|",
                     "|up|", "|delta|");
  for (const LoraModule& module : lora.modules)
    out += fmt::format("    {:<{}}  {:>5} {:>7g} {:>11.5g} {:>11.5g} {:>11.5g}\n", escaped(module.name), width,
                       module.down.desc.shape[0], module.alpha, norm(module.down.as<float>()),
                       norm(module.up.as<float>()), delta_norm(module));
  for (const std::string& key : lora.others) out += fmt::format("    no part of a pair: {}\n", escaped(key));
  return out;
}

std::string folder_text(const fs::path& folder, FileCache& cache) {
  std::vector<FilePtr> files;
  for (const fs::path& file : weight_set(folder)) files.push_back(cache.open(file));
  if (files.empty()) return {};
  std::string out =
      fmt::format("{} ({} file{})\n", folder.string(), files.size(), files.size() == 1 ? "" : "s") + summary(files);
  return out + metadata_text(files.front()->metadata());
}

}  // namespace

std::string inspect(const fs::path& path) {
  FileCache cache;
  if (!fs::is_directory(path)) {
    const FilePtr file = cache.open(path);
    std::string out = fmt::format("{}\n", path.string()) + summary({file});
    if (is_lora(*file)) out += lora_text(path);
    return out + metadata_text(file->metadata());
  }
  std::string out = folder_text(path, cache);
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory()) folders.insert(entry.path());
  for (const fs::path& folder : folders) out += folder_text(folder, cache);
  if (out.empty()) fail(Code::data, "{}: no safetensors weights here or in its folders", path.string());
  return out;
}

}  // namespace lh
