#include "train/gradient_buckets.h"

#include <algorithm>

namespace lh {
namespace {

constexpr int64_t grain = 16;  // parts begin at whole cache lines of a bucket

// Where the part of a rank begins.
int64_t part_begin(int64_t elements, int64_t rank, int64_t ranks) {
  const int64_t grains = (elements + grain - 1) / grain;
  return std::min(elements, grains * rank / ranks * grain);
}

std::vector<GradientRange> joined(std::vector<GradientRange> ranges) {
  std::ranges::sort(ranges, {}, &GradientRange::begin);
  std::vector<GradientRange> out;
  for (const GradientRange& range : ranges)
    if (!out.empty() && out.back().begin + out.back().elements == range.begin)
      out.back().elements += range.elements;
    else
      out.push_back(range);
  return out;
}

}  // namespace

GradientRange GradientBucket::place(int64_t rank, int64_t ranks) const {
  const int64_t begin = part_begin(elements, rank, ranks);
  return {begin, part_begin(elements, rank + 1, ranks) - begin};
}

std::vector<GradientRange> GradientBucket::part(int64_t rank, int64_t ranks) const {
  const GradientRange own = place(rank, ranks);
  std::vector<GradientRange> out;
  int64_t at = 0;
  for (const GradientRange& range : ranges) {
    const int64_t from = std::max(own.begin, at), to = std::min(own.begin + own.elements, at + range.elements);
    if (from < to) out.push_back({range.begin + from - at, to - from});
    at += range.elements;
  }
  return out;
}

std::vector<GradientBucket> gradient_buckets(const std::vector<GradientRange>& tensors, int64_t most_elements) {
  std::vector<GradientBucket> buckets;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (GradientRange left = tensors[t]; left.elements > 0;) {
      if (buckets.empty() || buckets.back().elements == most_elements) buckets.emplace_back();
      GradientBucket& bucket = buckets.back();
      const int64_t taken = std::min(left.elements, most_elements - bucket.elements);
      bucket.ranges.push_back({left.begin, taken});
      bucket.elements += taken;
      bucket.after = t + 1;
      left = {left.begin + taken, left.elements - taken};
    }
  for (GradientBucket& bucket : buckets) bucket.ranges = joined(std::move(bucket.ranges));
  return buckets;
}

int64_t most_in_part(int64_t elements, int64_t ranks) {
  const int64_t grains = (elements + grain - 1) / grain;
  return (grains + ranks - 1) / ranks * grain;
}

}  // namespace lh
