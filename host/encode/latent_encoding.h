// Pictures to latents: decode, crop to the bucket, VAE encoder, behind a cache.
#pragma once

#include <map>
#include <set>
#include <string>

#include "data/dataset.h"
#include "diffusion/random.h"
#include "encode/tensor_cache.h"
#include "encode/vae.h"
#include "run/program.h"

namespace lh {

class LatentEncoding {
 public:
  // Large pictures are encoded in tiles where `memory` bytes would not do for them whole.
  LatentEncoding(const Vae& vae, int64_t memory, const std::filesystem::path& cache_folder);
  // Encodes every sample that is not cached; the VAE is in memory only while this runs.
  void prepare(const Dataset& dataset);
  // Disk space that prepare() will take.
  int64_t bytes_to_cache(const Dataset& dataset) const;
  bool known(const std::string& content_hash) const;  // some bucket of this picture was cached when this was made
  // Mean and standard deviation in model space, float32 [1, h, w, 2C]; the sample must have been prepared.
  const HostTensor& posterior(const Sample& sample);
  // A draw of it, mean + deviation * normal: [h, w, C].
  void draw(const Sample& sample, Random random, std::span<float> out);

 private:
  struct Encoder {
    TileGrid tiles;
    std::string fingerprint;  // of the graph for one tile
  };
  const Encoder& encoder(const Bucket& bucket) const;
  std::string key(const Sample& sample) const;
  void encode(const std::vector<const Sample*>& samples);
  HostTensor encode(const Sample& sample, const VaePlan& plan, Program& program) const;
  Vae vae_;
  MemoryRoom room_;
  mutable std::map<Bucket, Encoder> encoders_;  // as far as asked for
  TensorCache cache_;
  std::set<std::string> cached_pictures_;  // content hashes, as far as keys hold them
  std::string weights_;                    // fingerprint of the VAE's files
};

// RGB bytes to float32 [1, H, W, 3] in [-1, 1], and back with clamping.
HostTensor image_to_tensor(const Image& image, bool flip);
Image tensor_to_image(const HostTensor& tensor);

}  // namespace lh
