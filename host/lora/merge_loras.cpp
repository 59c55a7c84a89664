#include "lora/merge_loras.h"

#include <algorithm>
#include <set>
#include <variant>

#include "core/error.h"
#include "lora/batches.h"
#include "lora/input.h"
#include "lora/modules.h"
#include "lora/product_sum.h"

namespace lh {
namespace {

using Source = LoraMerge::Source;

class Merger {
 public:
  Merger(const CheckpointSpec& spec, const Checkpoint& base, const std::vector<LoraInput>& inputs,
         const RankChoice& choice, Unmatched unmatched)
      : base_(base), choice_(choice), merge_(spec, base.weights(), inputs, unmatched) {
    for (const LoraInput& input : inputs) open_lora(input.path);  // says what is wrong with a file
    for (const std::string& weight : merge_.weights()) {
      const std::vector<Source>& sources = sources_[weight] = merge_.sources(weight);
      const auto by_weight = [](const Source& source) {
        return source.match.entry->has(LoraPart::magnitude) && !source.match.bias;
      };
      if (merge_.changed_by_plugin(weight) || std::ranges::any_of(sources, by_weight)) by_weight_.insert(weight);
    }
    if (sources_.empty()) fail(Code::data, "{}: no module of it changes this model", inputs.front().path.string());
    if (!by_weight_.empty() && choice.rank == 0 && choice.energy == 0)
      fail(Code::config,
           "{} of the changes depend on the weight, such as that of {} (DoRA, or a plugin's adapter): no sum of ranks "
           "is exactly the same. Give --rank or --energy, or merge --into checkpoint",
           by_weight_.size(), *by_weight_.begin());
  }

  MergedLora run() {
    std::vector<std::string> weights;
    for (const auto& [name, sources] : sources_)
      if (desc(name).shape.rank() < 2)
        add_small(name);
      else
        weights.push_back(name);
    const auto read = [&](size_t i) { return change_of(weights[i]); };
    const auto compute = [&](Change& change) { return cut(change); };
    in_batches("merge", weights.size(), read, compute, [&](size_t i, LowRank found) {
      const std::string module = small_key(weights[i]).first;
      LoraModule made = pair_module(module, found.product, desc(weights[i]).shape);
      made.others = std::move(modules_[module].others);
      lines_.push_back({module, rank_before(weights[i]), found.product.rank, found.kept, found.norm});
      modules_[module] = std::move(made);
    });
    MergedLora out{.modules = {}, .lines = std::move(lines_)};
    for (auto& [name, module] : modules_) {
      module.name = name;
      out.modules.push_back(std::move(module));
    }
    return out;
  }

 private:
  struct Matrix {
    std::vector<float> values;
    int64_t rows;
  };
  using Change = std::variant<LoraProduct, Matrix>;

  const Desc& desc(const std::string& name) const { return base_.weights().at(name); }

  int64_t rank_before(const std::string& weight) const {
    int64_t sum = 0;
    for (const Source& source : sources_.at(weight)) sum += source.match.entry->rank;
    return sum;
  }

  // A bias, or a weight that is a list of numbers.
  void add_small(const std::string& name) {
    HostTensor sum(Desc{DType::f32, desc(name).shape});
    const HostTensor before = by_weight_.contains(name) ? base_.read_f32(name) : sum;
    sum = before;
    merge_.apply(name, sum.desc.shape, sum.as<float>());
    for (size_t i = 0; i < sum.as<float>().size(); ++i) sum.as<float>()[i] -= before.as<float>()[i];
    auto [module, key] = small_key(name);
    modules_[module].others.emplace_back(std::move(key), std::move(sum));
  }

  Change change_of(const std::string& weight) const {
    const Shape& shape = desc(weight).shape;
    if (by_weight_.contains(weight)) {
      const HostTensor before = base_.read_f32(weight);
      std::vector<float> values(before.as<float>().begin(), before.as<float>().end());
      merge_.apply(weight, shape, values);
      for (size_t i = 0; i < values.size(); ++i) values[i] -= before.as<float>()[i];
      return Matrix{std::move(values), shape[0]};
    }
    ProductSum sum(shape[0], shape.with(0, 1).numel());
    for (const Source& source : sources_.at(weight))
      sum.add(product_of(*source.file, *source.match.entry), source.strength * source.match.entry->scale(),
              source.match.place);
    return sum.product();
  }

  LowRank cut(const Change& change) const {
    if (const Matrix* matrix = std::get_if<Matrix>(&change)) return low_rank(matrix->values, matrix->rows, choice_);
    const LoraProduct& product = std::get<LoraProduct>(change);
    if (choice_.rank == 0 && choice_.energy == 0) return {.product = product, .kept = 1, .norm = norm_of(product)};
    // QR factors of what is nearly a whole matrix cost more than the matrix does.
    if (4 * product.rank >= std::min(product.rows(), product.columns()))
      return low_rank(multiplied(product), product.rows(), choice_);
    return low_rank(product, choice_);
  }

  const Checkpoint& base_;
  RankChoice choice_;
  LoraMerge merge_;
  std::map<std::string, std::vector<Source>> sources_;  // by weight; none of foreign files
  std::set<std::string> by_weight_;                     // changes that depend on the weight
  std::map<std::string, LoraModule> modules_;
  std::vector<ModuleLine> lines_;
};

}  // namespace

MergedLora merge_loras(const CheckpointSpec& spec, const Checkpoint& base, const std::vector<LoraInput>& inputs,
                       const RankChoice& choice, Unmatched unmatched) {
  return Merger(spec, base, inputs, choice, unmatched).run();
}

}  // namespace lh
