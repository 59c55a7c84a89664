// Keys of the cache, and the encoder at work on those that it does not have.
#include "encode/latent_encoding.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/inpaint_mask.h"
#include "data/video.h"
#include "encode/latent_shape.h"
#include "encode/posterior.h"
#include "encode/read_ahead.h"
#include "encode/shared_work.h"
#include "graph/fingerprint.h"
#include "run/weights.h"

namespace lh {
namespace {

// A key is "<image>-<everything else>".
std::string image_part(const std::string& content_hash) { return content_hash.substr(0, 32); }

// Grey, which is 0, where the mask is 1. pixels: [H, W, 3]
void clear(std::span<float> pixels, const std::vector<uint8_t>& mask) {
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] != 0) std::ranges::fill(pixels.subspan(3 * i, 3), 0.0f);
}

float in_unit(uint8_t byte) { return static_cast<float>(byte) / 127.5f - 1.0f; }

}  // namespace

HostTensor image_bytes(std::span<const Image> images, Flip flip) {
  const int64_t height = images[0].height, width = images[0].width;
  HostTensor tensor(Desc{DType::u8, {static_cast<int64_t>(images.size()), height, width, 3}});
  uint8_t* out = tensor.as<uint8_t>().data();
  for (const Image& image : images)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t row = flip.y ? height - 1 - y : y, column = flip.x ? width - 1 - x : x;
          *out++ = image.rgb[static_cast<size_t>((row * width + column) * 3 + c)];
        }
  return tensor;
}

HostTensor images_to_tensor(std::span<const Image> images, Flip flip) {
  const HostTensor bytes = image_bytes(images, flip);
  HostTensor tensor(Desc{DType::f32, bytes.desc.shape});
  std::ranges::transform(bytes.as<uint8_t>(), tensor.as<float>().begin(), in_unit);
  return tensor;
}

std::vector<Image> tensor_to_images(const HostTensor& tensor) {
  const Shape& shape = tensor.desc.shape;  // [1, (T,) H, W, 3]
  const HostTensor values = converted(tensor, DType::f32);
  const int64_t height = shape[shape.rank() - 3], width = shape[shape.rank() - 2];
  const auto each = static_cast<size_t>(height * width * 3);
  std::vector<Image> images;
  for (std::span<const float> rest = values.as<float>(); !rest.empty(); rest = rest.subspan(each)) {
    Image& image = images.emplace_back(Image{width, height, std::vector<uint8_t>(each)});
    std::ranges::transform(rest.first(each), image.rgb.begin(), [](float v) {
      return static_cast<uint8_t>(std::lround(std::clamp((v + 1.0f) * 127.5f, 0.0f, 255.0f)));
    });
  }
  return images;
}

LatentEncoding::LatentEncoding(const Vae& vae, int64_t memory, const std::filesystem::path& cache_folder)
    : vae_(vae), room_{.limit = memory}, cache_(cache_folder, "latents/1") {
  const Checkpoint& checkpoint = vae.model.checkpoint();
  weights_ = checkpoint.has("vae") ? checkpoint.fingerprint("vae") : "none";
  std::error_code none;  // no folder: nothing is cached
  for (const auto& entry : std::filesystem::directory_iterator(cache_folder, none)) {
    const std::string file = entry.path().filename().string();
    if (const size_t end = file.find('-'); end != std::string::npos) cached_images_.insert(file.substr(0, end));
  }
}

const LatentEncoding::Encoder& LatentEncoding::encoder(const Bucket& bucket) const {
  if (const auto it = encoders_.find(bucket); it != encoders_.end()) return it->second;
  const VaePlan plan = vae_.fit(VaeRole::encode, bucket, room_);
  plan.require(room_);
  return encoders_.emplace(bucket, Encoder{plan.grid, fingerprint(plan.graph)}).first->second;
}

// Everything that decides what is kept: the image and how it is cut; and of an encoder the graph with its constants,
// the weights, the tiles.
std::string LatentEncoding::key(const ImageCut& cut) const {
  const Encoder* const vae = of_pixels() ? nullptr : &encoder(cut.bucket);
  std::string rest = vae != nullptr ? fmt::format("latent/3;{};{};", weights_, vae->fingerprint) : "pixels/1;";
  rest += fmt::format("{}x{};{}{}", cut.bucket.width, cut.bucket.height, cut.flip.x ? "flip" : "",
                      cut.flip.y ? "flip_y" : "");
  if (const Augment& a = cut.augment; a != Augment{})
    rest += fmt::format(";augment/1 {} {} {} {}{}", a.at.x, a.at.y, a.hue, a.gamma,
                        a.at.scale > 0 ? fmt::format(" scale {}", a.at.scale) : "");
  if (cut.inpaint && vae != nullptr)
    rest += ";inpaint/1 " +
            (cut.inpaint->file ? cut.inpaint->file->content_hash : fmt::format("drawn {}", cut.inpaint->number));
  if (cut.only_first) rest += ";first_frame/1";
  if (is_video_name(cut.file.path)) rest += ";clip/1 " + clip_text(cut.bucket, cut.clip);
  // Where tiles lie follows from their size and number.
  if (vae != nullptr && !vae->tiles.whole())
    rest += fmt::format(";tiles/1 {}x{} of {}x{}", vae->tiles.columns.starts.size(), vae->tiles.rows.starts.size(),
                        vae->tiles.columns.size, vae->tiles.rows.size);
  return image_part(cut.file.content_hash) + "-" + sha256_hex(rest).substr(0, 32);
}

bool LatentEncoding::known(const std::string& content_hash) const {
  return cached_images_.contains(image_part(content_hash));
}

Desc LatentEncoding::kept(const Bucket& bucket) const {
  const LatentSpec& spec = vae_.model.recipe().latents;
  const Sizes sizes = latent_sizes(spec, bucket);
  return of_pixels() ? Desc{DType::u8, latent_shape(spec, sizes, 1, spec.channels)}
                     : Desc{DType::f32, latent_shape(spec, sizes, 1, 2 * spec.channels)};
}

int64_t LatentEncoding::bytes_to_cache(const std::vector<ImageCut>& cuts) const {
  int64_t bytes = 0;
  for (const ImageCut& cut : cuts)
    if (cache_.on_disk() && !cache_.contains(key(cut))) bytes += kept(cut.bucket).bytes();
  return bytes;
}

void LatentEncoding::prepare(const std::vector<ImageCut>& cuts) { prepare(cuts, World::alone()); }

void LatentEncoding::prepare(const std::vector<ImageCut>& cuts, World& world) {
  std::vector<const ImageCut*> missing;
  for (const ImageCut& cut : cuts)
    if (!cache_.sound(key(cut), check(cut))) missing.push_back(&cut);
  // One graph for each bucket: cuts of a bucket in a row.
  std::ranges::stable_sort(missing, {}, [](const ImageCut* cut) { return cut->bucket; });
  if (!missing.empty()) encode(missing, world);
  if (world.first()) cache_.save_seen();
}

void LatentEncoding::encode(const std::vector<const ImageCut*>& cuts, World& world) {
  log_info("{} {} images", of_pixels() ? "cutting" : "encoding", cuts.size());
  std::optional<Weights> weights;
  std::optional<VaePlan> plan;
  OwnedProgram program;
  Bucket bucket;
  ReadAhead pixels(cuts);
  const auto make = [&](size_t index) {
    const ImageCut& cut = *cuts[index];
    if (of_pixels()) {
      cache_.put(key(cut), {{kept_name(), image_bytes(pixels.take(index), cut.flip)}});
      return;
    }
    if (!program || bucket != cut.bucket) {
      bucket = cut.bucket;
      plan.emplace(vae_.plan(VaeRole::encode, encoder(bucket).tiles, bucket.frames));
      if (!plan->grid.whole()) log_info("the VAE encodes images of {}", plan->text());
      if (!weights) weights.emplace(vae_.device, vae_.model.checkpoint(), plan->graph);
      program = {};  // frees the memory of the last bucket first
      program = OwnedProgram(vae_.device, plan->graph, weights->bind(plan->graph), "VAE encoder");
    }
    cache_.put(key(cut), {{kept_name(), encode(cut, pixels.take(index), *plan, *program)}});
  };
  std::vector<std::string> keys;
  keys.reserve(cuts.size());
  for (const ImageCut* cut : cuts) keys.push_back(key(*cut));
  make_together(world, {cache_, "encoding images", std::move(keys), make});
  for (size_t i = 0; i < cuts.size() && !stop_requested(); ++i)
    if (find(*cuts[i]) == nullptr) make(i);  // others' that cannot be read here
}

HostTensor LatentEncoding::encode(const ImageCut& cut, const std::vector<Image>& images, const VaePlan& plan,
                                  Program& program) const {
  HostTensor pixels = images_to_tensor(images, cut.flip);
  const LatentSpec& spec = vae_.model.recipe().latents;
  pixels.desc.shape = latent_shape(spec, pixel_sizes(spec, cut.bucket), 1, 3);
  if (cut.only_first) pixels.data.resize(static_cast<size_t>(pixels.desc.bytes()));  // zero is grey
  if (cut.inpaint) clear(pixels.as<float>(), inpaint_mask(cut));
  HostTensor posterior = in_tiles(pixels, plan.pixels(), plan.grid, [&](const HostTensor& tile) {
    program.set_input("image", tile);
    program.run();
    return converted(program.output("posterior"), DType::f32);
  });
  vae_.require_finite(VaeRole::encode, posterior, cut.file.path.string());
  return posterior;
}

TensorCache::Check LatentEncoding::check(const ImageCut& cut) const {
  return [wanted = kept(cut.bucket), name = kept_name()](const NamedTensors& entry) -> std::string {
    if (entry.size() != 1 || !entry.contains(name)) return fmt::format("expected one tensor, `{}`", name);
    const HostTensor& found = entry.at(name);
    if (found.desc != wanted) return fmt::format("`{}` is {}, expected {}", name, found.desc.text(), wanted.text());
    return all_finite(found) ? "" : fmt::format("`{}` holds a NaN or an infinity", name);
  };
}

TensorCache::Entry LatentEncoding::prepared(const ImageCut& cut) {
  TensorCache::Entry found = find(cut);
  if (found != nullptr) return found;
  cache_.save_seen();  // without it: the next run makes it again
  fail(Code::data,
       "{}: its latents were there when the run began, and cannot be read from the cache any more ({}). Start the run "
       "again with --resume: they are made again",
       cut.file.path.string(), cache_.folder().string());
}

void LatentEncoding::picture(const ImageCut& cut, std::span<float> out) {
  const TensorCache::Entry entry = prepared(cut);
  std::ranges::transform(entry->at(kept_name()).as<uint8_t>(), out.begin(), in_unit);
  if (cut.inpaint) clear(out, inpaint_mask(cut));
}

HostTensor LatentEncoding::mean(const ImageCut& cut) {
  const LatentSpec& spec = vae_.model.recipe().latents;
  HostTensor mean(Desc{DType::f32, latent_shape(spec, latent_sizes(spec, cut.bucket), 1, spec.channels)});
  const std::span<float> to = mean.as<float>();
  if (of_pixels()) {
    picture(cut, to);
    return mean;
  }
  const TensorCache::Entry entry = prepared(cut);
  const std::span<const float> from = entry->at(kept_name()).as<float>();
  const auto channels = static_cast<size_t>(spec.channels);
  for (size_t i = 0; i < to.size(); ++i) to[i] = from[i / channels * 2 * channels + i % channels];
  return mean;
}

void LatentEncoding::draw(const ImageCut& cut, Random random, std::span<float> out) {
  if (of_pixels()) return picture(cut, out);
  const TensorCache::Entry entry = prepared(cut);
  draw_posterior(entry->at(kept_name()).as<float>(), vae_.model.recipe().latents.channels, random, out);
}

}  // namespace lh
