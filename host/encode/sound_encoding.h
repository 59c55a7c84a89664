// The sound of clips to latents: decode, two channels at the model's rate, its encoder, behind a cache.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/dataset.h"
#include "encode/tensor_cache.h"
#include "encode/vae.h"

namespace lh {

class World;

// One role of a model's sound, sound.encode or sound.decode, built for clips of so many rows. In float32: what comes of
// rounding is heard.
struct SoundPlan {
  Graph graph{DType::f32};  // its one output is the posterior [1, rows, 2C] or the sound [1, samples, 2]
  Plan plan;
  VaeMemory memory;
};
SoundPlan plan_sound(Device& device, const Model& model, VaeRole role, int64_t rows);

class SoundEncoding {
 public:
  SoundEncoding(Device& device, const Model& model, int64_t memory, const std::filesystem::path& cache_folder);
  // Of samples whose bucket has sound, as LatentEncoding does of what is seen.
  void prepare(const Dataset& dataset, World& world);
  int64_t bytes_to_cache(const Dataset& dataset) const;
  void will_need(const ImageCut& cut) const;
  // A draw of the posterior, mean + deviation * normal: [rows, C].
  void draw(const ImageCut& cut, Random random, std::span<float> out);

 private:
  const SoundSpec& spec() const { return *model_.recipe().sound; }
  const std::string& fingerprint(int64_t rows) const;
  std::string key(const ImageCut& cut) const;
  std::map<std::string, ImageCut> by_key(const Dataset& dataset) const;
  Desc kept(const ImageCut& cut) const;
  TensorCache::Check check(const ImageCut& cut) const;
  HostTensor read(const ImageCut& cut) const;
  void encode(const std::vector<ImageCut>& cuts, World& world);
  Device& device_;
  const Model& model_;
  int64_t memory_;
  mutable std::map<int64_t, std::string> fingerprints_;  // of the graph and its weights, by rows
  TensorCache cache_;
};

}  // namespace lh
