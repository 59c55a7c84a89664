#include "lora/extract.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"
#include "lora/batches.h"
#include "lora/modules.h"

namespace lh {
namespace {

std::string component_of(const std::string& weight) {
  const size_t colon = weight.find(':');
  return colon == std::string::npos ? "denoiser" : weight.substr(0, colon);
}

// The weights of both that LoRA files can speak of.
std::vector<std::string> common_weights(const CheckpointSpec& spec, const Checkpoint& base, const Checkpoint& tuned) {
  std::vector<std::string> names;
  std::vector<LoraProblem> problems;
  const auto counts = [&](const std::string& name) {
    const std::string component = component_of(name);
    return !spec.component(component)->lora.empty() && base.has(component) && tuned.has(component);
  };
  for (const auto& [name, desc] : base.weights()) {
    if (!counts(name)) continue;
    const auto other = tuned.weights().find(name);
    if (other == tuned.weights().end())
      problems.push_back({name, "only the base has it"});
    else if (other->second.shape != desc.shape)
      problems.push_back(
          {name, fmt::format("the base has {}, the other {}", desc.shape.text(), other->second.shape.text())});
    else
      names.push_back(name);
  }
  for (const auto& [name, desc] : tuned.weights())
    if (counts(name) && !base.weights().contains(name)) problems.push_back({name, "only the other has it"});
  if (!problems.empty())
    fail(Code::data,
         "these are not two checkpoints of one model: {} weights differ in name or shape:{}\nGive the "
         "checkpoint that the other one was trained from",
         problems.size(), listed(problems));
  if (names.empty())
    fail(Code::data,
         "the two checkpoints have no weights in common that a LoRA can change. Give two checkpoints of one model, and "
         "as --model the one that the other was trained from");
  return names;
}

struct Difference {
  std::vector<float> values;
  int64_t rows = 0;
  bool matrix = false;
  double square = 0;
};

Difference difference(const Checkpoint& base, const Checkpoint& tuned, const std::string& name) {
  const HostTensor before = base.read_f32(name), after = tuned.read_f32(name);
  const Shape& shape = before.desc.shape;
  Difference out{.values = std::vector<float>(before.as<float>().size()),
                 .rows = shape.rank() > 0 ? shape[0] : 1,
                 .matrix = shape.rank() >= 2 && name.ends_with(".weight")};
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = after.as<float>()[i] - before.as<float>()[i];
    out.square += static_cast<double>(out.values[i]) * out.values[i];
  }
  if (!std::isfinite(out.square))
    fail(Code::data, "{} or {}: \"{}\" has a NaN or an infinity: one of the files is damaged. Fetch it again",
         base.file_of(name).string(), tuned.file_of(name).string(), name);
  return out;
}

}  // namespace

ExtractedLora extract_lora(const CheckpointSpec& spec, const Checkpoint& base, const Checkpoint& tuned,
                           const RankChoice& choice, bool with_small) {
  struct Found {
    std::optional<LowRank> product;
    std::vector<float> small;  // of what is no matrix
    double square = 0;
  };
  const std::vector<std::string> names = common_weights(spec, base, tuned);
  ExtractedLora out;
  std::map<std::string, LoraModule> modules;
  double all = 0, rest = 0;
  const auto read = [&](size_t i) { return difference(base, tuned, names[i]); };
  const auto compute = [&](Difference& change) {
    Found found{.product = {}, .small = {}, .square = change.square};
    if (change.matrix && change.square > 0)
      found.product = low_rank(change.values, change.rows, choice);
    else
      found.small = std::move(change.values);
    return found;
  };
  in_batches("extract", names.size(), read, compute, [&](size_t i, Found found) {
    all += found.square;
    if (found.square == 0) return;
    const Shape& shape = base.weights().at(names[i]).shape;
    const auto& [module, key] = small_key(names[i]);
    if (found.product) {
      const LoraProduct& product = found.product->product;
      LoraModule made = pair_module(module, product, shape);
      made.others = std::move(modules[module].others);
      modules[module] = std::move(made);
      out.lines.push_back({module, 0, product.rank, found.product->kept, found.product->norm});
      return;
    }
    ++out.small, rest += found.square;
    if (with_small) modules[module].others.emplace_back(key, HostTensor::from_floats(shape, found.small));
  });
  if (modules.empty())
    fail(Code::data, "the two checkpoints have the same matrices and convolutions{}: there is nothing to extract",
         with_small ? ", biases and norms" : "");
  for (auto& [name, module] : modules) {
    module.name = name;
    out.modules.push_back(std::move(module));
  }
  out.small_share = rest / all;
  return out;
}

}  // namespace lh
