// One component of a checkpoint: which stored tensors make each canonical one.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/quantized.h"
#include "io/weight_files.h"

namespace lh {

struct Assembly {  // how to make one canonical tensor
  Desc desc;
  Assemble assemble = Assemble::copy;
  std::vector<Piece> pieces;
};

struct LoadedComponent {
  std::map<std::string, Assembly> weights;
  std::vector<FilePtr> files;
};

// Keys nobody asked for: an error in a real load, skipped when only looking whether a file fits a plugin.
enum class UnknownKeys { refuse, skip };

// The component in a file or diffusers directory; nothing when its marker is not there.
std::optional<LoadedComponent> load_component(const CheckpointSpec& spec, const ComponentSpec& component,
                                              const std::filesystem::path& path, FileCache& cache, UnknownKeys unknown);

// Makes the tensor: reads in chunks, converts to dtype, multiplies scales out. out has exactly its bytes.
void read_assembly(const Assembly& recipe, const std::string& name, DType dtype, bool channels_last,
                   std::span<std::byte> out);

}  // namespace lh
