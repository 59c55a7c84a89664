// Reads LoRA files of any tool that stores down/up pairs.
#include <algorithm>
#include <array>
#include <optional>

#include "core/error.h"
#include "io/lora_file.h"

namespace lh {
namespace {

enum class Part { down, up, alpha };
struct Suffix {
  std::string_view text;
  Part part;
};
constexpr std::array<Suffix, 17> suffixes{{{".lora_down.weight", Part::down},
                                           {".lora_up.weight", Part::up},
                                           {".lora_A.weight", Part::down},
                                           {".lora_B.weight", Part::up},
                                           {".lora_A.default.weight", Part::down},
                                           {".lora_B.default.weight", Part::up},
                                           {".lora.down.weight", Part::down},
                                           {".lora.up.weight", Part::up},
                                           {"_lora.down.weight", Part::down},
                                           {"_lora.up.weight", Part::up},
                                           {".lora_linear_layer.down.weight", Part::down},
                                           {".lora_linear_layer.up.weight", Part::up},
                                           {".lora_A", Part::down},
                                           {".lora_B", Part::up},
                                           {".lora_down", Part::down},
                                           {".lora_up", Part::up},
                                           {".alpha", Part::alpha}}};

struct Key {
  std::string module;
  Part part;
};

std::optional<Key> split(const std::string& key) {
  for (const Suffix& suffix : suffixes)
    if (key.ends_with(suffix.text)) return Key{key.substr(0, key.size() - suffix.text.size()), suffix.part};
  return std::nullopt;
}

HostTensor read_f32(const Safetensors& file, const StoredTensor& tensor) {
  return converted(file.read(tensor.name), DType::f32);
}

std::string spelling_of(const std::vector<LoraModule>& modules) {
  struct Spelling {
    const char* name;
    std::vector<std::string_view> prefixes;
  };
  static const std::vector<Spelling> spellings{
      {"kohya", {"lora_unet_", "lora_te"}},
      {"diffusers", {"transformer.", "unet.", "text_encoder.", "text_encoder_2.", "text_encoder_3."}},
      {"native", {"diffusion_model."}}};
  for (const Spelling& spelling : spellings) {
    const bool all = std::ranges::all_of(modules, [&](const LoraModule& module) {
      return std::ranges::any_of(spelling.prefixes,
                                 [&](std::string_view prefix) { return module.name.starts_with(prefix); });
    });
    if (all && !modules.empty()) return spelling.name;
  }
  return "other";
}

struct Parts {
  const StoredTensor *down = nullptr, *up = nullptr, *alpha = nullptr;
};

LoraModule assemble(const Safetensors& file, const std::string& name, const Parts& parts) {
  const std::string path = file.path().string();
  LoraModule module{name, read_f32(file, *parts.down), read_f32(file, *parts.up)};
  const Shape &down = module.down.desc.shape, &up = module.up.desc.shape;
  if (down.rank() < 2 || up.rank() < 2 || up[1] != down[0] || up.with(0, 1).numel() != down[0])
    fail(Code::data,
         "{}: LoRA module \"{}\": down {} and up {} do not fit, expected [rank, in, ...] and [out, rank, ...]", path,
         name, down.text(), up.text());
  module.alpha = static_cast<double>(down[0]);
  if (parts.alpha == nullptr) return module;
  if (parts.alpha->desc.shape.numel() != 1 || !is_float(parts.alpha->desc.dtype))
    fail(Code::data, "{}: \"{}\" is {}, expected one float", path, parts.alpha->name, parts.alpha->desc.text());
  module.alpha = read_f32(file, *parts.alpha).as<float>()[0];
  return module;
}

}  // namespace

bool is_lora(const Safetensors& file) {
  return std::ranges::any_of(file.tensors(), [](const StoredTensor& tensor) {
    const auto key = split(tensor.name);
    return key && key->part != Part::alpha;
  });
}

LoraFile read_lora(const std::filesystem::path& path) {
  const Safetensors file(path);
  std::map<std::string, Parts> found;
  LoraFile out;
  for (const StoredTensor& tensor : file.tensors()) {
    const auto key = split(tensor.name);
    if (!key) {
      out.others.push_back(tensor.name);
      continue;
    }
    Parts& parts = found[key->module];
    const StoredTensor*& slot = key->part == Part::down ? parts.down : key->part == Part::up ? parts.up : parts.alpha;
    if (slot != nullptr)
      fail(Code::data, "{}: \"{}\" and \"{}\" are the same part of one module", path.string(), slot->name, tensor.name);
    slot = &tensor;
  }
  for (const auto& [name, parts] : found) {
    if (parts.down != nullptr && parts.up != nullptr) {
      out.modules.push_back(assemble(file, name, parts));
      continue;
    }
    for (const StoredTensor* lone : {parts.down, parts.up, parts.alpha})
      if (lone != nullptr) out.others.push_back(lone->name);
  }
  out.spelling = spelling_of(out.modules);
  out.metadata = file.metadata();
  return out;
}

}  // namespace lh
