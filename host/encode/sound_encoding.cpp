#include "encode/sound_encoding.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/bytes.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/clips.h"
#include "data/sound.h"
#include "encode/posterior.h"
#include "encode/shared_work.h"
#include "graph/fingerprint.h"
#include "passes/prune.h"
#include "run/program.h"
#include "run/weights.h"
#include "run/workspace.h"

namespace lh {
namespace {

constexpr const char* kept_name = "posterior";

const char* role_name(VaeRole role) { return role == VaeRole::encode ? "sound.encode" : "sound.decode"; }

}  // namespace

SoundPlan plan_sound(Device& device, const Model& model, VaeRole role, int64_t rows) {
  const SoundSpec& spec = *model.recipe().sound;
  const bool encode = role == VaeRole::encode;
  const auto size = encode ? std::pair("samples", spec.samples(rows)) : std::pair("rows", rows);
  SoundPlan made{.graph = model.build(role_name(role), {{"batch", 1}, {size.first, size.second}}, DType::f32),
                 .plan = {},
                 .memory = {}};
  Graph& graph = made.graph;
  const char* output = encode ? kept_name : "sound";
  const auto found = graph.outputs.find(output);
  if (found == graph.outputs.end())
    fail(Code::plugin, "plugin '{}', role {}: has no output '{}'", model.id(), role_name(role), output);
  const Shape shape = graph.desc(found->second).shape;
  if (shape.rank() != 3)
    fail(Code::plugin, "plugin '{}', role {}: output '{}' is {}, expected three axes", model.id(), role_name(role),
         output, shape.text());
  // A decoder may leave out what lies before its first sample.
  const Shape expected{1, encode ? rows : shape[1], encode ? 2 * spec.channels : 2};
  if (shape != expected)
    fail(Code::plugin, "plugin '{}', role {}: output '{}' is {}, expected {} for {} rows (recipe: sound)", model.id(),
         role_name(role), output, shape.text(), expected.text(), rows);
  std::erase_if(graph.outputs, [&](const auto& item) { return item.first != output; });
  prune(graph);
  made.plan = plan_memory(graph, parameters(graph));
  made.memory = {.weights = weight_bytes(graph, weight_names(graph, model.checkpoint())),
                 .arena = made.plan.bytes,
                 .workspace = workspace_bytes(device, graph, made.plan),
                 .constants = constant_bytes(graph)};
  return made;
}

SoundEncoding::SoundEncoding(Device& device, const Model& model, int64_t memory,
                             const std::filesystem::path& cache_folder)
    : device_(device), model_(model), memory_(memory), cache_(cache_folder, "sound/1") {}

const std::string& SoundEncoding::fingerprint(int64_t rows) const {
  if (const auto known = fingerprints_.find(rows); known != fingerprints_.end()) return known->second;
  const SoundPlan made = plan_sound(device_, model_, VaeRole::encode, rows);
  std::set<std::string> components;
  for (const std::string& weight : weight_names(made.graph, model_.checkpoint()))
    components.insert(weight.substr(0, weight.find(':')));
  std::string text = lh::fingerprint(made.graph);
  for (const std::string& component : components) text += ";" + model_.checkpoint().fingerprint(component);
  return fingerprints_.emplace(rows, sha256_hex(text)).first->second;
}

// Everything that decides what is kept: the video and its part, how that is played, graph and weights.
std::string SoundEncoding::key(const ImageCut& cut) const {
  const std::string rest = fmt::format("sound/1;{};{};{} rows;{} frames a second{}", fingerprint(cut.bucket.sound),
                                       clip_text(cut.bucket, cut.clip), cut.bucket.sound, spec().frame_rate,
                                       cut.normalize_sound ? ";normalized" : "");
  return cut.file.content_hash.substr(0, 32) + "-" + sha256_hex(rest).substr(0, 32);
}

Desc SoundEncoding::kept(const ImageCut& cut) const { return {DType::f32, {1, cut.bucket.sound, 2 * spec().channels}}; }

TensorCache::Check SoundEncoding::check(const ImageCut& cut) const {
  return [wanted = kept(cut)](const NamedTensors& entry) -> std::string {
    if (entry.size() != 1 || !entry.contains(kept_name)) return fmt::format("expected one tensor, `{}`", kept_name);
    const HostTensor& found = entry.at(kept_name);
    if (found.desc != wanted)
      return fmt::format("`{}` is {}, expected {}", kept_name, found.desc.text(), wanted.text());
    return all_finite(found) ? "" : fmt::format("`{}` holds a NaN or an infinity", kept_name);
  };
}

void SoundEncoding::will_need(const ImageCut& cut) const {
  if (cut.bucket.sound > 0) cache_.will_need(key(cut));
}

// Clips in several sizes, mirrored or cropped otherwise, have one sound.
std::map<std::string, ImageCut> SoundEncoding::by_key(const Dataset& dataset) const {
  std::map<std::string, ImageCut> cuts;
  for (const auto* samples : {&dataset.samples, &dataset.validation})
    for (const Sample& sample : *samples)
      if (sample.bucket.sound > 0) cuts.try_emplace(key(sample.cut()), sample.cut());
  return cuts;
}

int64_t SoundEncoding::bytes_to_cache(const Dataset& dataset) const {
  int64_t bytes = 0;
  for (const auto& [key, cut] : by_key(dataset))
    if (cache_.on_disk() && !cache_.contains(key)) bytes += kept(cut).bytes();
  return bytes;
}

void SoundEncoding::prepare(const Dataset& dataset, World& world) {
  std::vector<ImageCut> missing;
  for (auto& [key, cut] : by_key(dataset))
    if (!cache_.sound(key, check(cut))) missing.push_back(cut);
  // One graph for each length: those of a length in a row.
  std::ranges::stable_sort(missing, {}, [](const ImageCut& cut) { return cut.bucket.sound; });
  if (!missing.empty()) encode(missing, world);
  if (world.first()) cache_.save_seen();
}

// [1, samples, 2]
HostTensor SoundEncoding::read(const ImageCut& cut) const {
  const ClipTime time = time_of(cut);
  const int64_t count = spec().samples(cut.bucket.sound);
  // What the rows last, which differs from what the clip lasts by half a row at most.
  const double rows_last = static_cast<double>(count) / static_cast<double>(spec().rate);
  const double played = time.seconds / spec().seconds(cut.bucket.frames);
  return HostTensor::from_floats({1, count, 2}, read_sound(cut.file.path, {.start = time.start,
                                                                           .seconds = rows_last * played,
                                                                           .rate = spec().rate,
                                                                           .count = count,
                                                                           .normalized = cut.normalize_sound}));
}

void SoundEncoding::encode(const std::vector<ImageCut>& cuts, World& world) {
  log_info("encoding the sound of {} clips", cuts.size());
  std::optional<Weights> weights;
  OwnedProgram program;
  int64_t rows = 0;
  const auto make = [&](size_t index) {
    const ImageCut& cut = cuts[index];
    if (!program || rows != cut.bucket.sound) {
      rows = cut.bucket.sound;
      program = {};  // frees the memory of the last length first
      SoundPlan made = plan_sound(device_, model_, VaeRole::encode, rows);
      if (const int64_t needed = MemoryRoom{}.total(made.memory); needed > memory_)
        fail(Code::resource,
             "encoding the sound of {} frames takes {}, and there are {}. Use clips of fewer frames (num_frames)",
             cut.bucket.frames, size_text(needed), size_text(memory_));
      if (!weights) weights.emplace(device_, model_.checkpoint(), made.graph);
      const Externals bound = weights->bind(made.graph);
      program = OwnedProgram(device_, std::move(made.graph), bound, "sound encoder");
    }
    program->set_input("sound", read(cut));
    program->run();
    HostTensor posterior = converted(program->output(kept_name), DType::f32);
    if (!all_finite(posterior))
      fail(Code::numeric,
           "{}: its sound is encoded to a NaN or infinity. The file of the sound's autoencoder may be "
           "damaged",
           cut.file.path.string());
    cache_.put(key(cut), {{kept_name, std::move(posterior)}});
  };
  std::vector<std::string> keys;
  keys.reserve(cuts.size());
  for (const ImageCut& cut : cuts) keys.push_back(key(cut));
  make_together(world, {cache_, "encoding sound", std::move(keys), make});
  for (size_t i = 0; i < cuts.size() && !stop_requested(); ++i)
    if (cache_.find(key(cuts[i]), check(cuts[i])) == nullptr) make(i);  // others' that cannot be read here
}

void SoundEncoding::draw(const ImageCut& cut, Random random, std::span<float> out) {
  const TensorCache::Entry entry = cache_.find(key(cut), check(cut));
  if (entry == nullptr) {
    cache_.save_seen();  // without it: the next run makes it again
    fail(Code::data,
         "{}: the latents of its sound were there when the run began, and cannot be read from the cache any more ({}). "
         "Start the run again with --resume: they are made again",
         cut.file.path.string(), cache_.folder().string());
  }
  draw_posterior(entry->at(kept_name).as<float>(), spec().channels, random, out);
}

}  // namespace lh
