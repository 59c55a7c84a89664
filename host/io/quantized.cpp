// The spellings of scales in fp8 files, and which of them fit.
#include "io/quantized.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/json_text.h"

namespace lh {
namespace {

enum class Role { scale, ignored, format };
struct Suffix {
  std::string_view text;
  Role role;
};
constexpr std::array<Suffix, 5> suffixes{{{".scale_weight", Role::scale},
                                          {".weight_scale", Role::scale},
                                          {".scale_input", Role::ignored},
                                          {".input_scale", Role::ignored},
                                          {".comfy_quant", Role::format}}};
constexpr int64_t quant_text_limit = 1 << 16;
constexpr const char* layers_entry = "_quantization_metadata";

void check_format(const FilePtr& file, const std::string& layer, const nlohmann::json& json) {
  const auto text = json.is_object() && json.contains("format") && json["format"].is_string()
                        ? json["format"].get<std::string>()
                        : std::string("(none)");
  if (text != "float8_e4m3fn" && text != "float8_e5m2")
    fail(Code::data,
         "{}: layer \"{}\" is quantised as {}, expected float8_e4m3fn or float8_e5m2. Use the bf16, fp16 or fp8 "
         "version of this model",
         file->path().string(), layer, text);
}

void check_tensor_format(const StoredKey& key, const std::string& layer) {
  if (key.tensor->desc.dtype != DType::u8 || key.tensor->desc.bytes() > quant_text_limit)
    fail(Code::data, "{}: tensor \"{}\" is {}, expected JSON text as U8", key.file->path().string(), key.tensor->name,
         key.tensor->desc.text());
  std::string text(static_cast<size_t>(key.tensor->desc.bytes()), '\0');
  key.file->read(*key.tensor, std::as_writable_bytes(std::span(text)));
  check_format(key.file, layer, json_or_nothing(text));
}

void check_header_formats(const FilePtr& file) {
  const auto entry = file->metadata().find(layers_entry);
  if (entry == file->metadata().end()) return;
  const nlohmann::json json = json_or_nothing(entry->second);
  if (!json.is_object() || !json.contains("layers") || !json["layers"].is_object())
    fail(Code::data, "{}: metadata _quantization_metadata is not JSON with \"layers\"", file->path().string());
  for (const auto& [layer, description] : json["layers"].items()) check_format(file, layer, description);
}

void check_scale(const StoredKey& scale, const StoredTensor& weight) {
  const Desc& desc = scale.tensor->desc;
  const int64_t rows = weight.desc.shape.rank() > 0 ? weight.desc.shape[0] : 1;
  const int64_t count = desc.shape.numel();
  const bool per_row = count == rows && desc.shape.rank() > 0 && desc.shape[0] == rows;
  if (!is_float(desc.dtype) || (count != 1 && !per_row))
    fail(Code::data, "{}: scale \"{}\" is {}, expected one float or {} (one for each row of \"{}\")",
         scale.file->path().string(), scale.tensor->name, desc.text(), rows, weight.name);
}

}  // namespace

ScaledKeys resolve_scales(const StoredKeys& keys) {
  std::set<const WeightFile*> checked;
  ScaledKeys pieces;
  std::map<std::string, StoredKey> scales;  // by weight
  for (const auto& [key, stored] : keys) {
    if (checked.insert(stored.file.get()).second) check_header_formats(stored.file);
    if (key == "scaled_fp8" || key.ends_with(".scaled_fp8")) continue;
    bool description = false;
    for (const Suffix& suffix : suffixes) {
      if (!key.ends_with(suffix.text)) continue;
      const std::string layer = key.substr(0, key.size() - suffix.text.size()), weight = layer + ".weight";
      if (!keys.contains(weight)) continue;
      description = true;
      if (suffix.role == Role::format) check_tensor_format(stored, layer);
      if (suffix.role == Role::scale && !scales.emplace(weight, stored).second)
        fail(Code::data, "{}: weight \"{}\" has two scales, .scale_weight and .weight_scale",
             stored.file->path().string(), weight);
    }
    if (!description) pieces.emplace(key, ScaledKey{stored, std::nullopt});
  }
  for (auto& [weight, scale] : scales) {
    ScaledKey& piece = pieces.at(weight);
    check_scale(scale, *piece.weight.tensor);
    piece.scale = scale;
  }
  return pieces;
}

std::vector<float> scale_values(const ScaledKey& piece) {
  if (!piece.scale) return {};
  const StoredTensor& tensor = *piece.scale->tensor;
  HostTensor stored(tensor.desc);
  piece.scale->file->read(tensor, stored.data);
  std::vector<float> values(static_cast<size_t>(tensor.desc.shape.numel()));
  convert(tensor.desc.dtype, stored.data.data(), DType::f32, values.data(), static_cast<int64_t>(values.size()));
  return values;
}

bool describes_one_of(const std::string& key, const std::set<std::string>& weights) {
  return std::ranges::any_of(suffixes, [&](const Suffix& suffix) {
    return key.ends_with(suffix.text) && weights.contains(key.substr(0, key.size() - suffix.text.size()) + ".weight");
  });
}

void drop_layers(std::map<std::string, std::string>& metadata, const std::set<std::string>& weights) {
  const auto entry = metadata.find(layers_entry);
  if (entry == metadata.end() || weights.empty()) return;
  nlohmann::json json = json_or_nothing(entry->second);
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [layer, description] : json.at("layers").items()) {
    const std::string name = layer + ".weight";
    if (std::ranges::none_of(weights, [&](const std::string& w) { return w == name || w.ends_with("." + name); }))
      kept[layer] = description;
  }
  json["layers"] = kept;
  entry->second = json.dump();
}

}  // namespace lh
