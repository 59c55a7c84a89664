// Keys of the cache, and the conditioner at work on the prompts that it does not have.
#include "encode/text_encoding.h"

#include <algorithm>
#include <memory>
#include <set>

#include "core/bytes.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/rows.h"
#include "core/signals.h"
#include "encode/shared_work.h"
#include "graph/fingerprint.h"
#include "passes/prune.h"
#include "passes/store_weights.h"
#include "run/program.h"
#include "run/weights.h"

namespace lh {
namespace {

// What the denoiser needs of the conditioner: the outputs that its inputs are bound to, and their masks.
std::set<std::string> outputs_asked_for(const Recipe& recipe) {
  std::set<std::string> names;
  for (const auto& [input, spec] : recipe.inputs) {
    if (spec.source != InputSpec::Source::conditioner) continue;
    names.insert(spec.of);
    if (!spec.mask.empty()) names.insert(spec.mask);
  }
  return names;
}

// The conditioner's outputs that the denoiser is given, each with the mask that leaves rows of it out; "": none.
std::map<std::string, std::string> masks_by_output(const Recipe& recipe) {
  std::map<std::string, std::string> masks;
  for (const auto& [input, spec] : recipe.inputs)
    if (spec.source == InputSpec::Source::conditioner) masks.emplace(spec.of, spec.mask);
  return masks;
}

// Rows in front that a mask [1, L] keeps.
int64_t count_rows(const HostTensor& mask, const std::string& name, const std::string& plugin) {
  const HostTensor exact = converted(mask, DType::i32);
  const std::span<const int32_t> values = exact.as<int32_t>();
  const auto end = std::ranges::find(values, 0);
  if (std::find_if(end, values.end(), [](int32_t v) { return v != 0; }) != values.end())
    fail(Code::plugin,
         "plugin '{}', role conditioner: output '{}' keeps rows behind others that it leaves out; expected those that "
         "are there in front",
         plugin, name);
  if (end == values.begin())
    fail(Code::plugin, "plugin '{}', role conditioner: output '{}' keeps no row of a prompt; expected one at least",
         plugin, name);
  return end - values.begin();
}

}  // namespace

TextEncoding::TextEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder,
                           int64_t memory)
    : device_(device),
      model_(model),
      compute_(compute),
      cache_(cache_folder, "text/1"),
      memory_(memory),
      tokens_(model) {}

const ForwardFit& TextEncoding::fit() {
  if (!fit_) fit_ = fit_forward(device_, largest().graph, model_.checkpoint(), memory_);
  return *fit_;
}

// Of those that were asked for, the one with the most rows; the usual one where there is none.
TextEncoding::Encoder& TextEncoding::largest() {
  if (encoders_.empty()) return usual();
  const auto rows = [&](const auto& item) {
    int64_t all = 0;
    for (const auto& [name, length] : most_lengths(item.second)) all += length;
    return all;
  };
  return std::ranges::max_element(encoders_, {}, rows)->second;
}

void TextEncoding::require_memory(const std::vector<Prompt>& prompts) {
  for (const Prompt& prompt : prompts) encoder(prompt);  // all sizes of pictures, of which the largest has to fit
  const bool cached = std::ranges::all_of(prompts, [&](const Prompt& p) { return cache_.contains(key(p)); });
  if (prompts.empty() || cached || fit().bytes <= memory_) return;
  fail(Code::resource,
       "the text encoders do not fit: {} of memory may be used, and they take {} at least, with {} of {} blocks "
       "streamed from host memory. They run alone, before the first step. Raise memory.budget where it is set, or end "
       "other programs that use the device",
       size_text(memory_), room_text(fit().bytes), fit().streamed_blocks, fit().blocks);
}

TextEncoding::Encoder& TextEncoding::encoder(const PictureSizes& pictures) {
  if (const auto known = encoders_.find(pictures); known != encoders_.end()) return known->second;
  Encoder made{.graph = conditioner(compute_, pictures)};
  store_weights(made.graph, [&](const std::string& weight) { return model_.weight_form(weight); });
  return encoders_.emplace(pictures, std::move(made)).first->second;
}

// Everything that decides what the encoders give: the graph with its constants, their weights, the tokenizers, the
// prompt with its pictures.
std::string TextEncoding::key(const Prompt& prompt) {
  Encoder& conditioner = encoder(prompt);
  std::string& identity = conditioner.identity;
  if (identity.empty()) {
    identity = "text/3;" + fingerprint(conditioner.graph);
    for (const auto& [encoder, spec] : model_.recipe().tokenizers) {
      const std::string weights = model_.checkpoint().has(encoder) ? model_.checkpoint().fingerprint(encoder) : "none";
      identity += fmt::format(";{}:{}:{}:{}", encoder, tokens_.tokenizer(encoder).fingerprint(), spec.length, weights);
      if (spec.rows > 1) identity += fmt::format(":{} rows", spec.rows);
    }
    for (const std::string& encoder : model_.recipe().encoders())
      if (!model_.recipe().tokenizers.contains(encoder) && model_.checkpoint().has(encoder))
        identity += fmt::format(";{}:{}", encoder, model_.checkpoint().fingerprint(encoder));
  }
  return sha256_hex(identity + ";" + prompt.identity());
}

void TextEncoding::prepare(const std::vector<Prompt>& prompts) { prepare(prompts, World::alone()); }

void TextEncoding::prepare(const std::vector<Prompt>& prompts, World& world) {
  std::map<std::pair<PictureSizes, std::string>, const Prompt*> each;  // those of one graph one after another
  for (const Prompt& prompt : prompts)
    each.emplace(std::pair(picture_sizes(model_.recipe(), prompt), prompt.identity()), &prompt);
  std::vector<Prompt> missing;
  for (const auto& [which, prompt] : each)
    if (!cache_.sound(key(*prompt), check(*prompt))) missing.push_back(*prompt);
  if (!missing.empty()) encode(missing, world);
  if (world.first()) cache_.save_seen();
}

Graph TextEncoding::conditioner(DType compute, const PictureSizes& pictures) const {
  Sizes sizes = tokens_.sizes(pictures);
  sizes["batch"] = 1;
  Graph graph = model_.build("conditioner", sizes, compute);
  const std::set<std::string> wanted = outputs_asked_for(model_.recipe());
  for (const std::string& name : wanted)
    if (!graph.outputs.contains(name))
      fail(Code::plugin, "plugin '{}', role conditioner: has no output '{}', from which the recipe makes an input",
           model_.id(), name);
  std::erase_if(graph.outputs, [&](const auto& item) { return !wanted.contains(item.first); });
  prune(graph);
  return graph;
}

// Made by the part of the conditioner that the mask depends on, which is as a rule the tokens' own mask alone.
int64_t TextEncoding::rows_there(const std::string& mask, const Prompt& prompt) {
  if (const auto shapes = cache_.on_disk() ? cache_.shapes(key(prompt)) : std::nullopt)
    for (const auto& [name, with] : masks_by_output(model_.recipe()))
      if (const auto found = shapes->find(name); with == mask && found != shapes->end() && found->second.rank() > 1)
        return found->second[1];
  const auto [known, added] = there_.try_emplace({mask, prompt.identity()}, 0);
  if (!added) return known->second;
  Encoder& conditioner = encoder(prompt);
  OwnedProgram& program = conditioner.masks[mask];
  if (!program) {
    Graph part = conditioner.graph;
    std::erase_if(part.outputs, [&](const auto& item) { return item.first != mask; });
    prune(part);
    if (!parameters(part).empty())
      fail(Code::plugin, "plugin '{}', role conditioner: the mask '{}' depends on weights; expected on tokens alone",
           model_.id(), mask);
    program = OwnedProgram(device_, std::move(part), {}, "text masks");
  }
  set_inputs(*program, prompt);
  program->run();
  return known->second = count_rows(program->output(mask), mask, model_.id());
}

void TextEncoding::set_inputs(Program& conditioner, const Prompt& prompt) {
  const std::map<std::string, Value>& asked = conditioner.graph().inputs;
  for (const auto& [name, ids] : *tokens_.of(prompt))
    if (asked.contains(name)) conditioner.set_input(name, ids);
  for (const auto& [name, cut] : prompt.pictures)
    if (asked.contains(name)) conditioner.set_input(name, picture(model_.recipe().pictures.at(name), cut));
}

Sizes TextEncoding::lengths(const Prompt& prompt) {
  Sizes sizes = most_lengths(encoder(prompt));
  for (const auto& [input, spec] : model_.recipe().inputs) {
    if (spec.source != InputSpec::Source::conditioner || spec.mask.empty()) continue;
    sizes[length_size(input)] = spec.padded(rows_there(spec.mask, prompt));
  }
  return sizes;
}

Sizes TextEncoding::lengths(const std::vector<Prompt>& prompts) {
  Sizes longest;
  for (const Prompt& prompt : prompts)
    for (const auto& [name, length] : lengths(prompt)) longest[name] = std::max(longest[name], length);
  return longest;
}

Sizes TextEncoding::most_lengths() { return most_lengths(usual()); }

Sizes TextEncoding::most_lengths(const Encoder& encoder) const {
  Sizes sizes;
  for (const auto& [input, spec] : model_.recipe().inputs) {
    if (spec.source != InputSpec::Source::conditioner) continue;
    const Shape& shape = encoder.graph.desc(encoder.graph.outputs.at(spec.of)).shape;  // [1, L, ...]
    if (shape.rank() >= 3) sizes[length_size(input)] = spec.padded(shape[1]);
  }
  return sizes;
}

int64_t TextEncoding::bytes_each() {
  int64_t bytes = 0;
  const Graph& graph = largest().graph;
  for (const auto& [name, value] : graph.outputs) bytes += graph.desc(value).bytes();
  return bytes;
}

int64_t TextEncoding::bytes_to_cache(const std::vector<Prompt>& prompts) {
  std::set<std::string> missing;
  for (const Prompt& prompt : prompts)
    if (cache_.on_disk() && !cache_.contains(key(prompt))) missing.insert(prompt.identity());
  return missing.empty() ? 0 : bytes_each() * static_cast<int64_t>(missing.size());
}

NamedTensors TextEncoding::conditioning(Program& conditioner) const {
  NamedTensors out;
  for (const auto& [name, mask] : masks_by_output(model_.recipe())) {
    HostTensor all = conditioner.output(name);
    if (!mask.empty()) all = first_rows(all, count_rows(conditioner.output(mask), mask, model_.id()));
    out.emplace(name, std::move(all));
  }
  return out;
}

void TextEncoding::encode(const std::vector<Prompt>& prompts, World& world) {
  std::optional<Weights> weights;
  OwnedProgram program;
  const Encoder* bound = nullptr;  // that the program is of
  log_info("encoding {} prompts", prompts.size());
  const auto make = [&](size_t index) {
    const Prompt& prompt = prompts[index];
    if (const Encoder& wanted = encoder(prompt); bound != &wanted) {
      Graph fitted = wanted.graph;
      stream(fitted, fit().streaming);
      if (!weights && fit().streamed_blocks > 0)
        log_info("the weights of {} of {} blocks of the text encoders stay in host memory ({})", fit().streamed_blocks,
                 fit().blocks, size_text(fit().streamed));
      if (!weights) weights.emplace(device_, model_.checkpoint(), fitted);
      const Externals externals = weights->bind(fitted);
      program = {};  // its memory first
      program = OwnedProgram(device_, std::move(fitted), externals, "text encoders");
      bound = &wanted;
    }
    set_inputs(*program, prompt);
    program->run();
    NamedTensors made = conditioning(*program);
    for (const auto& [name, tensor] : made)
      if (!all_finite(tensor))
        fail(
            Code::numeric,
            "prompt \"{:.60}\": the text encoders give a NaN or an infinity in `{}`, computed in {}. Their file may be "
            "damaged{}",
            prompt.text, name, dtype_name(compute_),
            compute_ == DType::f32
                ? ": fetch it anew"
                : fmt::format(", or {} is too small for them: use train.dtype: fp32", dtype_name(compute_)));
    cache_.put(key(prompt), std::move(made));
  };
  std::vector<std::string> keys;
  keys.reserve(prompts.size());
  for (const Prompt& prompt : prompts) keys.push_back(key(prompt));
  make_together(world, {cache_, "encoding prompts", std::move(keys), make});
  for (size_t i = 0; i < prompts.size() && !stop_requested(); ++i) {
    if (find(prompts[i]) == nullptr) make(i);  // others' that cannot be read here
  }
}

TensorCache::Check TextEncoding::check(const Prompt& prompt) {
  return [this, prompt](const NamedTensors& entry) -> std::string {
    const std::map<std::string, std::string> masks = masks_by_output(model_.recipe());
    for (const auto& [name, tensor] : entry)
      if (!masks.contains(name)) return fmt::format("`{}` is no output that the denoiser is given", name);
    for (const auto& [name, mask] : masks) {
      const auto found = entry.find(name);
      if (found == entry.end()) return fmt::format("`{}` is missing", name);
      const Graph& graph = encoder(prompt).graph;
      Desc wanted = graph.desc(graph.outputs.at(name));
      if (!mask.empty()) wanted.shape = wanted.shape.with(1, rows_there(mask, prompt));
      if (found->second.desc != wanted)
        return fmt::format("`{}` is {}, expected {}", name, found->second.desc.text(), wanted.text());
      if (!all_finite(found->second)) return fmt::format("`{}` holds a NaN or an infinity", name);
    }
    return {};
  };
}

TensorCache::Entry TextEncoding::at(const Prompt& prompt) {
  const auto given = given_.find(prompt.identity());
  TensorCache::Entry found = given != given_.end() ? given->second : find(prompt);
  if (found != nullptr) return found;
  cache_.save_seen();  // without it: the next run makes it again
  fail(Code::data,
       "prompt \"{:.60}\": its encoding was there when the run began, and cannot be read from the cache any more ({}). "
       "Start the run again with --resume: it is made again",
       prompt.text, cache_.folder().string());
}

}  // namespace lh
