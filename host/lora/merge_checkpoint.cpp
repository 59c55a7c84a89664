#include "lora/merge_checkpoint.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "core/error.h"
#include "io/component.h"
#include "io/gguf.h"
#include "io/quantise.h"
#include "io/quantized.h"
#include "io/temp_folder.h"
#include "lora/batches.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr int64_t chunk_bytes = 8 << 20;
constexpr std::string_view widen = "Give --save-dtype bf16: the changed weights become bf16, the others stay fp8";

// A canonical weight that a stored tensor is a piece of.
struct Use {
  std::string weight;
  const Assembly* recipe = nullptr;
  size_t piece = 0;
};
using Uses = std::map<const StoredTensor*, std::vector<Use>>;

struct Plan {
  std::map<std::string, LoadedComponent> components;
  std::map<std::string, Desc> weights;
  Uses uses;                                                  // of all stored tensors that make a changed weight
  std::map<const StoredTensor*, const StoredTensor*> scales;  // of a scale: the tensor that it belongs to
  std::optional<DType> dtype;
  std::unique_ptr<LoraMerge> merge;

  bool changes(const StoredTensor& tensor) const {
    const auto found = uses.find(&tensor);
    return found != uses.end() &&
           std::ranges::any_of(found->second, [&](const Use& use) { return merge->changes(use.weight); });
  }
};

std::string weight_name(const std::string& component, const std::string& key) {
  return component == "denoiser" ? key : fmt::format("{}:{}", component, key);
}

Plan plan_of(const CheckpointSpec& spec, const std::map<std::string, fs::path>& paths,
             const std::vector<LoraInput>& loras, Unmatched unmatched, std::optional<DType> dtype) {
  Plan plan;
  std::set<std::string> useful;
  plan.components = load_components(spec, paths, useful);
  plan.dtype = dtype;
  for (const auto& [component, loaded] : plan.components)
    for (const auto& [key, recipe] : loaded.weights) plan.weights.emplace(weight_name(component, key), recipe.desc);
  plan.merge = std::make_unique<LoraMerge>(spec, plan.weights, loras, unmatched);
  for (const auto& [component, loaded] : plan.components)
    for (const auto& [key, recipe] : loaded.weights)
      for (size_t p = 0; p < recipe.pieces.size(); ++p) {
        const ScaledKey& piece = recipe.pieces[p];
        plan.uses[piece.weight.tensor].push_back({weight_name(component, key), &recipe, p});
        if (piece.scale) plan.scales[piece.scale->tensor] = piece.weight.tensor;
      }
  return plan;
}

const ScaledKey& piece_of(const Plan& plan, const StoredTensor& tensor) {
  const Use& use = plan.uses.at(&tensor).front();
  return use.recipe->pieces[use.piece];
}

// The values of a stored tensor with the changes in them.
std::vector<float> changed_values(const Plan& plan, const WeightFile& file, const StoredTensor& tensor) {
  std::vector<float> stored(static_cast<size_t>(tensor.desc.shape.numel()));
  const std::vector<Use>& uses = plan.uses.at(&tensor);
  const Assembly own{.desc = tensor.desc, .pieces = {piece_of(plan, tensor)}};
  read_assembly(own, tensor.name, DType::f32, false, std::as_writable_bytes(std::span(stored)));
  for (const Use& use : uses) {
    if (!plan.merge->changes(use.weight)) continue;
    const Desc& desc = plan.weights.at(use.weight);
    std::vector<float> values(static_cast<size_t>(desc.shape.numel()));
    read_assembly(*use.recipe, use.weight, DType::f32, false, std::as_writable_bytes(std::span(values)),
                  [&](std::span<float> v) { plan.merge->apply(use.weight, desc.shape, v); });
    put_piece(*use.recipe, use.piece, values, stored);
  }
  const int64_t bad = count_non_finite(DType::f32, stored.data(), static_cast<int64_t>(stored.size()));
  if (bad > 0)
    fail(Code::numeric,
         "{}: \"{}\" has {} NaNs or infinities with the changes in it. Nothing was written. Is one in the LoRA or in "
         "the checkpoint? lora-host verify FILE --model MODEL looks at the LoRA",
         file.path().string(), tensor.name, bad);
  return stored;
}

// fp8 codes of the values, and the factors, as many as the scale has.
struct Codes {
  std::vector<std::byte> codes;
  std::vector<float> factors;
};
Codes quantised(const Plan& plan, const WeightFile& file, const StoredTensor& tensor) {
  const ScaledKey& piece = piece_of(plan, tensor);
  const std::vector<float> values = changed_values(plan, file, tensor);
  Codes out{std::vector<std::byte>(values.size()),
            std::vector<float>(static_cast<size_t>(piece.scale->tensor->desc.shape.numel()))};
  quantise_rows(DType::f8_e4m3, values, out.codes, out.factors);
  return out;
}

// Throws where a changed fp8 weight cannot stay fp8.
void check_fp8(const Plan& plan, const WeightFile& file) {
  if (plan.dtype) return;
  for (const StoredTensor& tensor : file.tensors()) {
    if (!is_fp8(tensor.desc.dtype) || !plan.changes(tensor)) continue;
    const ScaledKey& piece = piece_of(plan, tensor);
    std::string why;
    if (!piece.scale)
      why = "has no scale beside it, and rounded to bare codes most of a small change would be lost";
    else if (tensor.desc.dtype != DType::f8_e4m3)
      why = fmt::format("is {}, which is not written", dtype_name(tensor.desc.dtype));
    else if (piece.scale->tensor->desc.dtype != DType::f32)
      why = fmt::format("has a scale of type {}, expected float32", dtype_name(piece.scale->tensor->desc.dtype));
    if (!why.empty()) fail(Code::data, "{}: \"{}\" {}. {}", file.path().string(), tensor.name, why, widen);
  }
}

// One file again.
class FileWriter {
 public:
  FileWriter(const Plan& plan, FilePtr file) : plan_(plan), file_(std::move(file)) {
    check_fp8(plan, *file_);
    for (const StoredTensor& tensor : file_->tensors()) {
      Desc desc = tensor.desc;
      if (plan.changes(tensor)) {
        ++changed_;
        if (plan.dtype && is_fp8(desc.dtype)) widened_.insert(tensor.name);
        if (plan.dtype) desc.dtype = *plan.dtype;
      }
      tensors_.push_back(&tensor);
      entries_.emplace_back(tensor.name, desc);
    }
    for (size_t i = entries_.size(); i-- > 0;)
      if (describes_one_of(entries_[i].first, widened_)) {
        entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
        tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(i));
      }
  }

  int64_t changed() const { return changed_; }

  MergedFile write(const fs::path& to) const {
    Progress progress(to.filename().string(), static_cast<int64_t>(entries_.size()));
    stream_safetensors(to, entries_, metadata(), [&](size_t i, const WriteBytes& put) {
      check_stop();
      produce(*tensors_[i], entries_[i].second, put);
      progress.update(static_cast<int64_t>(i) + 1, {});
    });
    return {file_->path(), to, static_cast<int64_t>(entries_.size()), changed_};
  }

 private:
  void produce(const StoredTensor& tensor, const Desc& desc, const WriteBytes& put) const {
    if (const auto scale = plan_.scales.find(&tensor); scale != plan_.scales.end() && plan_.changes(*scale->second)) {
      const std::vector<float> factors = quantised(plan_, *file_, *scale->second).factors;
      return put(std::as_bytes(std::span(factors)));
    }
    if (!plan_.changes(tensor)) return copy(tensor, put);
    if (is_fp8(desc.dtype)) return put(quantised(plan_, *file_, tensor).codes);
    const std::vector<float> values = changed_values(plan_, *file_, tensor);
    std::vector<std::byte> bytes(static_cast<size_t>(desc.bytes()));
    const auto count = static_cast<int64_t>(values.size());
    convert(DType::f32, values.data(), desc.dtype, bytes.data(), count);
    if (const int64_t bad = count_non_finite(desc.dtype, bytes.data(), count); bad > 0)
      fail(Code::numeric, "{}: {} values of \"{}\" do not fit into {}. Nothing was written. Give --save-dtype bf16",
           file_->path().string(), bad, tensor.name, dtype_name(desc.dtype));
    put(bytes);
  }

  void copy(const StoredTensor& tensor, const WriteBytes& put) const {
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(chunk_bytes, tensor.desc.bytes())));
    for (int64_t at = 0; at < tensor.desc.bytes(); at += chunk_bytes) {
      const std::span part(buffer.data(), static_cast<size_t>(std::min(chunk_bytes, tensor.desc.bytes() - at)));
      file_->read_part(tensor, at, part);
      put(part);
    }
  }

  std::map<std::string, std::string> metadata() const {
    std::map<std::string, std::string> entries = file_->metadata();
    for (const char* hash : {"modelspec.hash_sha256", "sshs_model_hash", "sshs_legacy_hash"}) entries.erase(hash);
    drop_layers(entries, widened_);
    return entries;
  }

  const Plan& plan_;
  FilePtr file_;
  std::vector<const StoredTensor*> tensors_;
  std::vector<std::pair<std::string, Desc>> entries_;
  std::set<std::string> widened_;  // fp8 weights that are so no more
  int64_t changed_ = 0;
};

void require_new_folder(const fs::path& out) {
  std::error_code none;
  if (fs::exists(out, none) && !(fs::is_directory(out, none) && fs::is_empty(out, none)))
    fail(Code::config, "--out {}: is there already. Name a folder that is not there yet", out.string());
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  const InputFile in(from);
  publish_file(to, in.size(), [&](OutputFile& out) {
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(chunk_bytes, in.size())));
    for (int64_t at = 0; at < in.size(); at += chunk_bytes) {
      check_stop();
      const std::span part(buffer.data(), static_cast<size_t>(std::min(chunk_bytes, in.size() - at)));
      in.read(at, part);
      out.write(part);
    }
  });
}

bool is_weights(const fs::path& file) {
  constexpr std::array<std::string_view, 8> ends{".safetensors", ".gguf", ".bin",     ".ckpt",
                                                 ".pt",          ".pth",  ".msgpack", ".onnx"};
  return std::ranges::find(ends, file.extension().string()) != ends.end();
}

// What of a model's folder is copied beside the files that were written: all but other sets of the same weights, which
// nothing was merged into.
void copy_rest(const Plan& plan, const fs::path& from, const fs::path& to, const std::set<fs::path>& written) {
  std::set<fs::path> used, folders;
  for (const auto& [component, loaded] : plan.components)
    for (const FilePtr& file : loaded.files) used.insert(file->path().lexically_normal());
  for (const fs::path& file : written) folders.insert(file.parent_path());
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
    const fs::path& path = entry.path();
    if (!entry.is_regular_file() || written.contains(path)) continue;
    if (is_weights(path) && !used.contains(path) && folders.contains(path.parent_path())) continue;
    const fs::path target = to / path.lexically_relative(from);
    make_folder(target.parent_path());
    copy_bytes(path, target);
  }
}

}  // namespace

std::vector<MergedFile> merge_checkpoint(const CheckpointSpec& spec, const std::map<std::string, fs::path>& paths,
                                         const std::vector<LoraInput>& loras, Unmatched unmatched,
                                         std::optional<DType> dtype, const fs::path& out) {
  const Plan plan = plan_of(spec, paths, loras, unmatched, dtype);
  std::map<fs::path, FilePtr> files;
  for (const auto& [component, loaded] : plan.components)
    for (const FilePtr& file : loaded.files)
      if (std::ranges::any_of(file->tensors(), [&](const StoredTensor& tensor) { return plan.changes(tensor); }))
        files.emplace(file->path().lexically_normal(), file);
  if (files.empty()) fail(Code::data, "{}: it changes no weight of this model", loras.front().path.string());
  for (const auto& [path, file] : files)
    if (is_gguf(path))
      fail(Code::data,
           "{}: a merged model is written as its files are, and GGUF files are only read. Merge into the safetensors "
           "file of this model",
           path.string());
  const auto main = paths.find("name_or_path");
  const bool folder = main != paths.end() && fs::is_directory(main->second);
  std::vector<MergedFile> done;
  if (!folder && files.size() == 1) {
    const auto& [path, file] = *files.begin();
    const fs::path to = fs::is_directory(out) ? out / path.filename() : out;
    if (to != out && fs::exists(to)) fail(Code::config, "--out {}: is there already. Name another", to.string());
    done.push_back(FileWriter(plan, file).write(to));
    return done;
  }
  const fs::path root = folder ? main->second.lexically_normal() : fs::path();
  require_new_folder(out);
  TempFolder made(out);
  std::set<fs::path> written;
  const auto place_of = [&](const fs::path& path) {
    const fs::path inside = folder ? path.lexically_relative(root) : fs::path();
    const bool below = !inside.empty() && *inside.begin() != "..";
    return made.path() / (below ? inside : path.filename());
  };
  for (const auto& [path, file] : files) {
    const fs::path to = place_of(path);
    make_folder(to.parent_path());
    if (fs::exists(to))
      fail(Code::config, "{} and another file of the model have one name: merge into them one after the other",
           path.string());
    done.push_back(FileWriter(plan, file).write(to));
    done.back().to = out / to.lexically_relative(made.path());
    written.insert(path);
  }
  if (folder) copy_rest(plan, root, made.path(), written);
  made.put_in_place();
  return done;
}

}  // namespace lh
