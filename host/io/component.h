// One component of a checkpoint: which stored tensors make each canonical one.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/quantized.h"
#include "io/weight_files.h"

namespace lh {

struct Assembly {  // how to make one canonical tensor
  Desc desc;
  Assemble assemble = Assemble::copy;
  std::vector<ScaledKey> pieces;
  int64_t part = 0, parts = 1;  // of the rows of its only piece: which of so many equal parts
};

struct LoadedComponent {
  std::map<std::string, Assembly> weights;
  std::vector<FilePtr> files;
  std::filesystem::path folder = {};  // that holds them; empty where the component is in a single file
};

// Keys nobody asked for: an error in a real load; when only looking whether a file fits a plugin they keep their names.
enum class UnknownKeys { refuse, keep };

// The component in a file or diffusers directory; nothing when its marker is not there.
std::optional<LoadedComponent> load_component(const CheckpointSpec& spec, const ComponentSpec& component,
                                              const std::filesystem::path& path, FileCache& cache, UnknownKeys unknown);

// The components of a model that are there: each in the file of its own key, or else in that of name_or_path, or else
// in that of extras_name_or_path. useful: is told the keys whose path held something.
std::map<std::string, LoadedComponent> load_components(const CheckpointSpec& spec,
                                                       const std::map<std::string, std::filesystem::path>& paths,
                                                       std::set<std::string>& useful);

// Changes the values of a tensor, in the canonical order.
using ChangeValues = std::function<void(std::span<float> values)>;

// Makes the tensor: reads in chunks, converts to dtype, multiplies scales out. out has exactly its bytes. With `change`
// the values go through it in float32 and are rounded to dtype after it.
void read_assembly(const Assembly& recipe, const std::string& name, DType dtype, bool channels_last,
                   std::span<std::byte> out, const ChangeValues& change = {});

// The way back: puts the values of the canonical tensor that come from one of its pieces, as they are stored there, at
// their place among the elements of that stored tensor. Scales are not divided out.
void put_piece(const Assembly& recipe, size_t piece, std::span<const float> canonical, std::span<float> stored);

// The fp8 form in which the tensor is stored: one fp8 tensor as it is, or the rows of several of one type. Nothing for
// any other.
std::optional<WeightForm> stored_fp8(const Assembly& recipe);
// Brings it as it is stored, without conversion; codes and factors have exactly the sizes of its stored_fp8.
void read_stored_fp8(const Assembly& recipe, std::span<std::byte> codes, std::span<float> factors);
// Reads a tensor and rounds it to a quantised type (io/quantise.h); codes and scale have the sizes of WeightForm::of.
void read_rounded(const Assembly& recipe, const std::string& name, DType dtype, std::span<std::byte> codes,
                  std::span<std::byte> scale, const ChangeValues& change = {});

}  // namespace lh
