// Plans a graph of the VAE for one tile, and tries tiles until one fits.
#include "encode/vae.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "encode/latent_shape.h"
#include "passes/prune.h"
#include "run/weights.h"
#include "run/workspace.h"

namespace lh {

void VaeMemory::join(const VaeMemory& other) {
  weights = std::max(weights, other.weights);
  arena = std::max(arena, other.arena);
  workspace = std::max(workspace, other.workspace);
  constants += other.constants;
}

int64_t MemoryRoom::total(const VaeMemory& vae) const {
  return taken + vae.weights + vae.constants + std::max(arena, vae.arena) + std::max(workspace, vae.workspace);
}

std::string VaePlan::text() const {
  const TileGrid p = pixels();
  std::string size = fmt::format("{} x {} pixels", p.columns.length, p.rows.length);
  if (frames > 1) size += fmt::format(" and {} frames", frames);
  if (grid.whole()) return size;
  return fmt::format("{} in {} x {} tiles of {} x {}", size, p.columns.starts.size(), p.rows.starts.size(),
                     p.columns.size, p.rows.size);
}

void VaePlan::require(const MemoryRoom& room) const {
  if (room.total(memory) <= room.limit) return;
  fail(Code::resource,
       "the VAE does not fit: to {} {} takes {} MiB (weights {}, activations {}, workspace {}), {} with what is beside "
       "it, and {} MiB of memory may be used. Set model.vae_tile below {}, raise memory.budget where it is set, or "
       "end other programs that use the device",
       role == VaeRole::encode ? "encode" : "decode", text(), MemoryRoom{}.total(memory) >> 20, memory.weights >> 20,
       memory.arena >> 20, memory.workspace >> 20, room.total(memory) >> 20, room.limit >> 20,
       std::max(grid.rows.size, grid.columns.size) * downscale);
}

namespace {

// The configuration's key for the file of the VAE.
std::string key_of(const Model& model) {
  const ComponentSpec* vae = model.spec().component("vae");
  return vae == nullptr ? "model.name_or_path" : "model." + vae->config_key;
}

}  // namespace

VaePlan Vae::plan(VaeRole role, const TileGrid& grid, int64_t frames) const {
  const bool encode = role == VaeRole::encode;
  if (!model.checkpoint().has("vae"))
    fail(Code::config, "{}: the VAE is needed to {} images, but no file was given for it", key_of(model),
         encode ? "encode" : "decode");
  const LatentSpec& latents = model.recipe().latents;
  const int64_t downscale = latents.downscale;
  const Bucket tile{grid.columns.size * downscale, grid.rows.size * downscale, frames};
  Sizes sizes = encode ? pixel_sizes(latents, tile) : latent_sizes(latents, tile);
  sizes["batch"] = 1;
  Graph graph = model.build(encode ? "vae.encode" : "vae.decode", sizes, compute);
  const char* output = encode ? "posterior" : "image";
  const Shape expected = encode ? latent_shape(latents, latent_sizes(latents, tile), 1, 2 * latents.channels)
                                : latent_shape(latents, pixel_sizes(latents, tile), 1, 3);
  const auto found = graph.outputs.find(output);
  if (found == graph.outputs.end())
    fail(Code::plugin, "plugin '{}', role {}: has no output '{}'", model.id(), encode ? "vae.encode" : "vae.decode",
         output);
  if (const Shape& shape = graph.desc(found->second).shape; shape != expected)
    fail(Code::plugin,
         "plugin '{}', role {}: output '{}' is {}, expected {}: latents of {} channels, {} pixels a place (recipe: "
         "latents)",
         model.id(), encode ? "vae.encode" : "vae.decode", output, shape.text(), expected.text(), latents.channels,
         downscale);
  std::erase_if(graph.outputs, [&](const auto& item) { return item.first != output; });
  prune(graph);
  Plan plan = plan_memory(graph, parameters(graph));
  const VaeMemory memory{.weights = weight_bytes(graph, weight_names(graph, model.checkpoint())),
                         .arena = plan.bytes,
                         .workspace = workspace_bytes(device, graph, plan),
                         .constants = constant_bytes(graph)};
  return {role, grid, downscale, frames, std::move(graph), std::move(plan), memory};
}

VaePlan Vae::fit(VaeRole role, const Bucket& image, const MemoryRoom& room) const {
  const int64_t downscale = model.recipe().latents.downscale;
  const std::vector<TileGrid> choices =
      tile_choices(image.height / downscale, image.width / downscale, downscale, tile, image.frames);
  std::optional<VaePlan> planned;
  for (const TileGrid& grid : choices) {
    planned.emplace(plan(role, grid, image.frames));
    if (room.total(planned->memory) <= room.limit) break;
  }
  return std::move(*planned);
}

void Vae::require_finite(VaeRole role, const HostTensor& given, const std::string& image) const {
  if (all_finite(given)) return;
  const char* fix = compute == DType::f32 ? "Its file may be damaged"
                                          : "Use train.dtype: fp32, which computes the VAE in float32 too. If it "
                                            "overflows then as well, its file may be damaged";
  fail(Code::numeric, "{}: the VAE {} it to a NaN or infinity in {}. {}: give another one as {}", image,
       role == VaeRole::encode ? "encodes" : "decodes", dtype_name(compute), fix, key_of(model));
}

}  // namespace lh
