#include "encode/latent_encoding.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/hash.h"
#include "core/signals.h"
#include "graph/fingerprint.h"
#include "run/weights.h"

namespace lh {
namespace {

// A key is "<picture>-<everything else>".
std::string picture_part(const std::string& content_hash) { return content_hash.substr(0, 32); }

}  // namespace

HostTensor image_to_tensor(const Image& image, bool flip) {
  HostTensor tensor(Desc{DType::f32, {1, image.height, image.width, 3}});
  const std::span<float> out = tensor.as<float>();
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t from = flip ? image.width - 1 - x : x;
        out[static_cast<size_t>((y * image.width + x) * 3 + c)] =
            static_cast<float>(image.rgb[static_cast<size_t>((y * image.width + from) * 3 + c)]) / 127.5f - 1.0f;
      }
  return tensor;
}

Image tensor_to_image(const HostTensor& tensor) {
  const Shape& shape = tensor.desc.shape;  // [1, H, W, 3]
  const HostTensor values = converted(tensor, DType::f32);
  Image image{shape[2], shape[1], std::vector<uint8_t>(static_cast<size_t>(shape.numel()))};
  std::ranges::transform(values.as<float>(), image.rgb.begin(), [](float v) {
    return static_cast<uint8_t>(std::lround(std::clamp((v + 1.0f) * 127.5f, 0.0f, 255.0f)));
  });
  return image;
}

LatentEncoding::LatentEncoding(const Vae& vae, int64_t memory, const std::filesystem::path& cache_folder)
    : vae_(vae), room_{.limit = memory}, cache_(cache_folder) {
  const Checkpoint& checkpoint = vae.model.checkpoint();
  weights_ = checkpoint.has("vae") ? checkpoint.fingerprint("vae") : "none";
  std::error_code none;  // no folder: nothing is cached
  for (const auto& entry : std::filesystem::directory_iterator(cache_folder, none)) {
    const std::string file = entry.path().filename().string();
    if (const size_t end = file.find('-'); end != std::string::npos) cached_pictures_.insert(file.substr(0, end));
  }
}

const LatentEncoding::Encoder& LatentEncoding::encoder(const Bucket& bucket) const {
  if (const auto it = encoders_.find(bucket); it != encoders_.end()) return it->second;
  const VaePlan plan = vae_.fit(VaeRole::encode, {bucket.width, bucket.height}, room_);
  plan.require(room_);
  return encoders_.emplace(bucket, Encoder{plan.grid, fingerprint(plan.graph)}).first->second;
}

// Everything that decides what the encoder gives: the picture and how it is cut, the graph with its constants, the
// weights, the tiles.
std::string LatentEncoding::key(const Sample& s) const {
  const auto& [tiles, graph] = encoder(s.bucket);
  std::string rest =
      fmt::format("latent/2;{};{};{}x{};{}", weights_, graph, s.bucket.width, s.bucket.height, s.flip ? "flip" : "");
  // Where tiles lie follows from their size and number.
  if (!tiles.whole())
    rest += fmt::format(";tiles/1 {}x{} of {}x{}", tiles.columns.starts.size(), tiles.rows.starts.size(),
                        tiles.columns.size, tiles.rows.size);
  return picture_part(s.content_hash) + "-" + sha256_hex(rest).substr(0, 32);
}

bool LatentEncoding::known(const std::string& content_hash) const {
  return cached_pictures_.contains(picture_part(content_hash));
}

int64_t LatentEncoding::bytes_to_cache(const Dataset& dataset) const {
  const LatentSpec& spec = vae_.model.recipe().latents;
  int64_t bytes = 0;
  for (const Sample& s : dataset.samples)
    if (cache_.on_disk() && !cache_.contains(key(s)))
      bytes += s.bucket.width / spec.downscale * (s.bucket.height / spec.downscale) * 2 * spec.channels *
               static_cast<int64_t>(sizeof(float));
  return bytes;
}

void LatentEncoding::prepare(const Dataset& dataset) {
  std::vector<const Sample*> missing;
  for (const Sample& sample : dataset.samples)
    if (cache_.find(key(sample)) == nullptr) missing.push_back(&sample);
  // One graph for each bucket: samples of a bucket in a row.
  std::ranges::stable_sort(missing, {}, [](const Sample* s) { return s->bucket; });
  if (!missing.empty()) encode(missing);
}

void LatentEncoding::encode(const std::vector<const Sample*>& samples) {
  spdlog::info("encoding {} pictures", samples.size());
  std::optional<Weights> weights;
  std::optional<VaePlan> plan;
  OwnedProgram program;
  Bucket bucket;
  for (const Sample* sample : samples) {
    if (stop_requested()) return;  // what is encoded stays in the cache
    if (!program || bucket != sample->bucket) {
      bucket = sample->bucket;
      plan.emplace(vae_.plan(VaeRole::encode, encoder(bucket).tiles));
      if (!plan->grid.whole()) spdlog::info("the VAE encodes pictures of {}", plan->text());
      if (!weights) weights.emplace(vae_.device, vae_.model.checkpoint(), plan->graph);
      program = {};  // frees the memory of the last bucket first
      program = OwnedProgram(vae_.device, plan->graph, weights->bind(plan->graph), "VAE encoder");
    }
    cache_.put(key(*sample), {{"posterior", encode(*sample, *plan, *program)}});
  }
}

HostTensor LatentEncoding::encode(const Sample& sample, const VaePlan& plan, Program& program) const {
  const Image image = resize_and_crop(decode_image(sample.image), sample.bucket.width, sample.bucket.height);
  HostTensor posterior =
      in_tiles(image_to_tensor(image, sample.flip), plan.pixels(), plan.grid, [&](const HostTensor& tile) {
        program.set_input("image", tile);
        program.run();
        return converted(program.output("posterior"), DType::f32);
      });
  vae_.require_finite(VaeRole::encode, posterior, sample.image.string());
  return posterior;
}

const HostTensor& LatentEncoding::posterior(const Sample& sample) {
  const NamedTensors* found = cache_.find(key(sample));
  if (found == nullptr) fail(Code::internal, "{}: latents were not prepared", sample.image.string());
  return found->at("posterior");
}

void LatentEncoding::draw(const Sample& sample, Random random, std::span<float> out) {
  const std::span<const float> p = posterior(sample).as<float>();
  const auto channels = static_cast<size_t>(vae_.model.recipe().latents.channels);
  random.fill_normal(out);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = i / channels * 2 * channels + i % channels;  // mean; its deviation is `channels` behind it
    out[i] = p[at] + p[at + channels] * out[i];
  }
}

}  // namespace lh
