#include "encode/text_encoding.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/signals.h"
#include "passes/prune.h"
#include "run/program.h"
#include "run/weights.h"

namespace lh {

TextEncoding::TextEncoding(Device& device, const Model& model, DType compute, const std::filesystem::path& cache_folder)
    : device_(device), model_(model), compute_(compute), cache_(cache_folder) {
  for (const auto& [encoder, spec] : model.recipe().tokenizers) {
    const std::string weights = model.checkpoint().has(encoder) ? model.checkpoint().fingerprint(encoder) : "none";
    tokenizers_[encoder] = make_tokenizer(spec, model.tokenizer_places(spec));
    encoders_ += fmt::format("{}:{}:{}:{};", encoder, tokenizers_[encoder]->fingerprint(), spec.length, weights);
  }
}

std::string TextEncoding::key(const std::string& prompt) const {
  return sha256_hex(fmt::format("text/2;{}{};{}", encoders_, dtype_name(compute_), prompt));
}

void TextEncoding::prepare(const std::vector<std::string>& prompts) {
  std::vector<std::string> missing;
  for (const std::string& prompt : std::set<std::string>(prompts.begin(), prompts.end()))
    if (cache_.find(key(prompt)) == nullptr) missing.push_back(prompt);
  if (!missing.empty()) encode(missing);
}

Sizes TextEncoding::lengths() const {
  Sizes sizes;
  for (const auto& [encoder, spec] : model_.recipe().tokenizers) {
    if (!model_.checkpoint().has(encoder)) {
      const ComponentSpec* component = model_.spec().component(encoder);
      fail(Code::config, "model.{}: text encoder '{}' is needed, but no file was given for it",
           component == nullptr ? encoder : component->config_key, encoder);
    }
    sizes[encoder + ".length"] = spec.length;
  }
  return sizes;
}

Graph TextEncoding::conditioner(DType compute) const {
  Sizes sizes = lengths();
  sizes["batch"] = 1;
  Graph graph = model_.build("conditioner", sizes, compute);
  std::erase_if(graph.outputs, [](const auto& item) { return item.first != "text" && item.first != "pooled"; });
  prune(graph);
  return graph;
}

int64_t TextEncoding::length() const {
  const Graph graph = conditioner(compute_);
  return graph.desc(graph.outputs.at("text")).shape[1];
}

const Tokens& TextEncoding::tokens(const std::string& prompt) {
  const auto [it, added] = tokens_.try_emplace(prompt);
  if (!added) return it->second;
  const auto& specs = model_.recipe().tokenizers;
  for (const auto& [encoder, spec] : specs) {
    const TokenRow row = tokenize(*tokenizers_.at(encoder), prompt, spec.length);
    if (row.cut > 0 && encoder == specs.rbegin()->first)
      spdlog::warn("prompt is {} tokens too long for {} and is cut: {:.60}...", row.cut, encoder, prompt);
    it->second[encoder + ".input_ids"] = HostTensor::from_ints({1, spec.length}, row.ids);
  }
  return it->second;
}

int64_t TextEncoding::bytes_to_cache(const std::vector<std::string>& prompts) const {
  std::set<std::string> missing;
  for (const std::string& prompt : prompts)
    if (cache_.on_disk() && !cache_.contains(key(prompt))) missing.insert(prompt);
  if (missing.empty()) return 0;
  const Graph graph = conditioner(compute_);
  int64_t each = 0;
  for (const auto& [name, value] : graph.outputs) each += graph.desc(value).bytes();
  return each * static_cast<int64_t>(missing.size());
}

void TextEncoding::encode(const std::vector<std::string>& prompts) {
  Graph graph = conditioner(compute_);
  const Weights weights(device_, model_.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device_, std::move(graph), bound, "text encoders");
  spdlog::info("encoding {} prompts", prompts.size());
  for (const std::string& prompt : prompts) {
    if (stop_requested()) return;  // what is encoded stays in the cache
    for (const auto& [name, ids] : tokens(prompt)) program->set_input(name, ids);
    program->run();
    cache_.put(key(prompt), {{"text", program->output("text")}, {"pooled", program->output("pooled")}});
  }
}

Conditioning TextEncoding::at(const std::string& prompt) {
  const auto given = given_.find(prompt);
  const NamedTensors* found = given != given_.end() ? &given->second : cache_.find(key(prompt));
  if (found == nullptr) fail(Code::internal, "prompt was not prepared: {}", prompt);
  return {&found->at("text"), &found->at("pooled")};
}

}  // namespace lh
