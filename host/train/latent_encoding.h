// Pictures to latents: decode, crop to the bucket, VAE encoder, behind a cache.
#pragma once

#include <set>
#include <string>

#include "data/dataset.h"
#include "plugin/model.h"
#include "run/device.h"
#include "train/tensor_cache.h"

namespace lh {

class LatentEncoding {
 public:
  LatentEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder);
  // Encodes every sample that is not cached; the VAE is in memory only while this runs.
  void prepare(const Dataset& dataset);
  // Disk space that prepare() will take.
  int64_t bytes_to_cache(const Dataset& dataset) const;
  bool known(const std::string& content_hash) const;  // some bucket of this picture was cached when this was made
  // Mean and log-variance of the posterior, float32 [h, w, 2z]; the sample must have been prepared.
  const HostTensor& moments(const Sample& sample);

 private:
  std::string key(const Sample& sample) const;
  void encode(const std::vector<const Sample*>& samples);
  Device& device_;
  const Model& model_;
  DType compute_;
  TensorCache cache_;
  std::set<std::string> cached_pictures_;  // content hashes, as far as keys hold them
  std::string vae_;
};

// RGB bytes to float32 [1, H, W, 3] in [-1, 1], and back with clamping.
HostTensor image_to_tensor(const Image& image, bool flip);
Image tensor_to_image(const HostTensor& tensor);

}  // namespace lh
