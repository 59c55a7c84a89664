// The VAE for images of one size: whole, or in the largest tiles that fit into memory.
//
// An image in tiles is not quite what it would be as a whole: normalization and attention of the VAE see a tile only.
#pragma once

#include <string>

#include "data/sample.h"
#include "encode/tiles.h"
#include "plugin/model.h"
#include "run/device.h"
#include "run/plan.h"

namespace lh {

enum class VaeRole { encode, decode };

// Device memory in bytes.
struct VaeMemory {
  int64_t weights = 0, arena = 0, workspace = 0, constants = 0;
  // Of both, one after the other with the same weights.
  void join(const VaeMemory& other);
};

// Memory that may be used, and what others have of it.
struct MemoryRoom {
  int64_t limit = 0;                 // of all together
  int64_t taken = 0;                 // stays beside the VAE
  int64_t arena = 0, workspace = 0;  // of others that never run at the same time: shared with the VAE
  int64_t total(const VaeMemory& vae) const;
};

struct VaePlan {
  VaeRole role;
  TileGrid grid;      // in latent places
  int64_t downscale;  // pixels of one
  int64_t frames;     // of a clip
  Graph graph;        // of one tile; its one output is the image or the posterior
  Plan plan;
  VaeMemory memory;

  TileGrid pixels() const { return grid.times(downscale); }
  std::string text() const;  // "2048 x 2048 pixels in 2 x 2 tiles of 1120 x 1120"
  // Throws lh::Error with the numbers when the room is too small.
  void require(const MemoryRoom& room) const;
};

struct Vae {
  Device& device;
  const Model& model;
  DType compute;
  int64_t tile = 0;  // pixels; 0: as large as fits

  VaePlan plan(VaeRole role, const TileGrid& grid, int64_t frames = 1) const;
  // The largest tiles that fit into the room; the smallest where none do.
  VaePlan fit(VaeRole role, const Bucket& image, const MemoryRoom& room) const;
  // Throws lh::Error when what it gave has a NaN or infinity; `image` says of what.
  void require_finite(VaeRole role, const HostTensor& given, const std::string& image) const;
};

}  // namespace lh
