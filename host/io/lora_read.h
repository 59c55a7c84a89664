// The content of a LoRA file, by module: which tensors it has and what they make. Nothing but small tensors is read.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/lora_keys.h"
#include "io/weight_files.h"

namespace lh {

enum class LoraKind { lora, loha, lokr, full };
std::string_view lora_kind_name(LoraKind kind);  // "LoRA", "LoHa", ...

// Throws lh::Error(Code::data), which says what a file that is no LoRA may be.
[[noreturn]] void refuse_no_lora(const WeightFile& file);

struct LoraTensor {
  const StoredTensor* stored = nullptr;
  std::string_view family;
};

// One module, named as the file spells it.
struct LoraEntry {
  std::string name;
  LoraKind kind = LoraKind::lora;
  std::map<LoraPart, LoraTensor> parts;
  std::optional<double> alpha;  // nothing: the scale is 1
  std::string alpha_source;     // where it stands if not in a tensor of the module (io/lora_scale.h)
  int64_t rank = 0;             // that divides alpha; 0: nothing is decomposed, alpha does not count

  bool has(LoraPart part) const { return parts.contains(part); }
  bool changes_weight() const { return kind != LoraKind::full || has(LoraPart::diff); }
  const StoredTensor& tensor(LoraPart part) const { return *parts.at(part).stored; }
  const Shape& shape(LoraPart part) const { return tensor(part).desc.shape; }
  // Rows of the change, and elements of each: of LoKr the product of both factors.
  int64_t rows() const;
  int64_t row_elements() const;
  // alpha / rank.
  double scale() const { return alpha && rank > 0 ? *alpha / static_cast<double>(rank) : 1; }
};

struct LoraProblem {  // a key that is no part of a usable module
  std::string key, why;
};
// Problems as lines that begin with a line break, the first of them where there are many.
std::string listed(const std::vector<LoraProblem>& problems);

struct LoraFile {
  FilePtr file;
  std::vector<LoraEntry> entries;  // by name
  std::vector<LoraProblem> problems;
};

// Modules that are incomplete or do not fit together are problems, not errors.
LoraFile read_lora(const std::filesystem::path& path);
// Throws lh::Error(Code::data) where a tensor holds a NaN or an infinity: whatever it is added to would be blamed.
void require_finite(const WeightFile& file);
// Does any key look like a tensor of a LoRA?
bool is_lora(const WeightFile& file);

// A tensor's elements as float32.
HostTensor read_f32(const LoraFile& file, const StoredTensor& tensor);

}  // namespace lh
