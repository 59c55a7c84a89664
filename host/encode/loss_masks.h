// How much each place of a sample's latents counts in the loss, from its mask.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/sample.h"

namespace lh {

class LossMasks {
 public:
  explicit LossMasks(int64_t downscale) : downscale_(downscale) {}
  // Reads the masks of these samples. Throws lh::Error(Code::data) for one that is 0 everywhere.
  void prepare(const std::vector<Sample>& samples);
  // [height, width] of the latents, each the mean of its pixels, mirrored as the sample is; ones for a sample without a
  // mask.
  std::vector<float> at(const Sample& sample, CropAt crop = {});

 private:
  const std::vector<float>& places(const SampleMask& mask, const Bucket& bucket, CropAt crop);
  int64_t downscale_;
  std::map<std::string, std::vector<float>> known_;
};

// A batch's weights [batch, places]: those of its samples times those of its places, which are 1 on average over the
// batch where `normalized`, as in ai-toolkit.
std::vector<float> place_weights(const std::vector<float>& samples, std::vector<float> places, bool normalized);

}  // namespace lh
