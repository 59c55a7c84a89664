// Images and clips to latents: decode, crop to the bucket, VAE encoder, behind a cache. Latents that are the picture
// itself (LatentSpec::pixels) are kept as the bytes that it has, which say them exactly.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/random.h"
#include "data/sample.h"
#include "encode/tensor_cache.h"
#include "encode/vae.h"
#include "run/program.h"

namespace lh {

class World;

class LatentEncoding {
 public:
  // Large images are encoded in tiles where `memory` bytes would not do for them whole.
  LatentEncoding(const Vae& vae, int64_t memory, const std::filesystem::path& cache_folder);
  // Encodes every one that is not cached; the VAE is in memory only while this runs. The second: together with the
  // other processes of a run, all of which call it.
  void prepare(const std::vector<ImageCut>& cuts);
  void prepare(const std::vector<ImageCut>& cuts, World& world);
  // Disk space that prepare() will take.
  int64_t bytes_to_cache(const std::vector<ImageCut>& cuts) const;
  bool on_disk() const { return cache_.on_disk(); }
  // A draw of it is asked for soon.
  void will_need(const ImageCut& cut) const { cache_.will_need(key(cut)); }
  bool known(const std::string& content_hash) const;  // some cut of this image was cached when this was made
  // Of the posterior in model space, which must have been prepared: the mean, float32 [1, (t,) h, w, C]. Of a picture
  // itself there is no other draw.
  HostTensor mean(const ImageCut& cut);
  // A draw of it, mean + deviation * normal: [(t,) h, w, C].
  void draw(const ImageCut& cut, Random random, std::span<float> out);

 private:
  struct Encoder {
    TileGrid tiles;
    std::string fingerprint;  // of the graph for one tile
  };
  const Encoder& encoder(const Bucket& bucket) const;
  std::string key(const ImageCut& cut) const;
  void encode(const std::vector<const ImageCut*>& cuts, World& world);
  HostTensor encode(const ImageCut& cut, const std::vector<Image>& images, const VaePlan& plan, Program& program) const;
  TensorCache::Check check(const ImageCut& cut) const;
  TensorCache::Entry find(const ImageCut& cut) { return cache_.find(key(cut), check(cut)); }
  TensorCache::Entry prepared(const ImageCut& cut);
  bool of_pixels() const { return vae_.model.recipe().latents.pixels; }
  // An entry's one tensor: mean and deviation, float32 [1, (t,) h, w, 2C]; or bytes, [1, H, W, 3].
  const char* kept_name() const { return of_pixels() ? "pixels" : "posterior"; }
  Desc kept(const Bucket& bucket) const;
  void picture(const ImageCut& cut, std::span<float> out);  // in [-1, 1], grey where it is to be painted anew
  Vae vae_;
  MemoryRoom room_;
  mutable std::map<Bucket, Encoder> encoders_;  // as far as asked for
  TensorCache cache_;
  std::set<std::string> cached_images_;  // content hashes, as far as keys hold them
  std::string weights_;                  // fingerprint of the VAE's files
};

// RGB bytes of images of one size, [n, H, W, 3].
HostTensor image_bytes(std::span<const Image> images, Flip flip);
// The same as float32 in [-1, 1]; and back with clamping, of [1, H, W, 3] one image, of [1, T, H, W, 3] each frame.
HostTensor images_to_tensor(std::span<const Image> images, Flip flip);
std::vector<Image> tensor_to_images(const HostTensor& tensor);

}  // namespace lh
