#include "encode/step_shapes.h"

#include <algorithm>

#include "encode/latent_shape.h"

namespace lh {
namespace {

constexpr size_t most_shapes = 12;  // each takes a plan, and its record on the device

void grow(Sizes& lengths, const Sizes& others) {
  for (const auto& [name, length] : others) lengths[name] = std::max(lengths[name], length);
}

// Names whose length is not the same for all samples. With one of them the longest of a batch is that of a sample; with
// several it may be a mix that no sample has.
int64_t varying(const std::vector<Sizes>& lengths) {
  int64_t count = 0;
  if (lengths.empty()) return count;
  for (const auto& [name, length] : lengths.front())
    count += std::ranges::any_of(lengths, [&, n = name, l = length](const Sizes& s) { return s.at(n) != l; });
  return count;
}

}  // namespace

Sizes StepShape::sizes(const LatentSpec& latents) const {
  Sizes sizes = latent_sizes(latents, bucket);
  sizes.insert(lengths.begin(), lengths.end());
  sizes["batch"] = batch;
  return sizes;
}

StepShapes::StepShapes(const Recipe& recipe, const Dataset& dataset, const RunCaptions& captions, TextEncoding& text,
                       bool any_text) {
  std::map<BatchKind, Sizes> longest;
  for (size_t i = 0; i < dataset.samples.size(); ++i) {
    const Sample& sample = dataset.samples[i];
    Sizes& lengths = lengths_.emplace_back(any_text ? text.most_lengths() : Sizes{});
    if (!any_text)
      for (const std::string* caption : captions.of(i))
        grow(lengths, text.lengths({recipe, *caption, sample.images, sample.cut()}));
    grow(longest[sample.kind()], lengths);
    all_.insert({sample.bucket, lengths, sample.batch_size});
  }
  if (varying(lengths_) <= 1 && all_.size() <= std::max(most_shapes, longest.size())) return;
  all_.clear();
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const Sample& sample = dataset.samples[i];
    lengths_[i] = longest.at(sample.kind());
    all_.insert({sample.bucket, lengths_[i], sample.batch_size});
  }
}

// Of several lengths of one name the largest, which is in `all`: at most one name varies within a kind.
StepShape StepShapes::of(const Batch& batch) const {
  StepShape shape{batch.kind.bucket, {}, batch.kind.size};
  for (const int64_t sample : batch.samples) grow(shape.lengths, lengths_[static_cast<size_t>(sample)]);
  return shape;
}

}  // namespace lh
