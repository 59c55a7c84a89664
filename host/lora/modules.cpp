#include "lora/modules.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "io/lora_delta.h"
#include "lora/product_sum.h"

namespace lh {
namespace {

using enum LoraPart;

constexpr const char* magnitude_key = "dora_scale";

// Why the tensors of one entry cannot be put under the module's own name; thrown inside this file.
struct NoForm {
  const LoraEntry* entry;
  std::string why;
};

// Ways on for what is no pair.
constexpr std::string_view instead = "lora-host merge --into lora --rank N makes a LoRA of it";

bool is_pair(const LoraEntry& entry) { return entry.kind == LoraKind::lora && !entry.has(mid); }

// The rows of a tensor in the order of the weight.
HostTensor in_order(HostTensor tensor, const LoraPlace& place) {
  if (!place.swapped_halves) return tensor;
  const auto middle = tensor.data.begin() + static_cast<std::ptrdiff_t>(tensor.data.size() / 2);
  std::rotate(tensor.data.begin(), middle, tensor.data.end());
  return tensor;
}

// As it is stored for LyCORIS: [out, 1, ...] or [1, in, ...].
Shape magnitude_shape(const Shape& weight, MagnitudeAxis axis) {
  Shape shape = weight;
  for (int64_t i = 0; i < weight.rank(); ++i) shape = shape.with(i, 1);
  return axis == MagnitudeAxis::output ? shape.with(0, weight[0]) : shape.with(1, weight[1]);
}

// Of a pair for a weight: a 1x1 convolution's may be stored as matrices.
Shape down_shape(const Shape& weight, int64_t rank) { return weight.with(0, rank); }
Shape up_shape(const Shape& weight, int64_t rank) {
  Shape shape = weight.with(1, rank);
  for (int64_t axis = 2; axis < weight.rank(); ++axis) shape = shape.with(axis, 1);
  return shape;
}

class ModuleMaker {
 public:
  ModuleMaker(const LoraFile& file, const std::map<std::string, Desc>& weights) : file_(file), weights_(weights) {}

  // matches: of one weight.
  void add_weight(const std::string& weight, const std::vector<LoraMatch>& matches) {
    const LoraMatch& first = matches.front();
    const Shape& shape = weights_.at(weight).shape;
    if (shape.rank() < 2 && first.entry->kind != LoraKind::full)
      throw NoForm{first.entry, fmt::format("the weight {} is no matrix", shape.text())};
    LoraModule& module = at(first.place.module);
    if (matches.size() == 1 && first.place.whole && (!first.place.swapped_halves || moves_rows(*first.entry)))
      return as_stored(first, shape, module);
    for (const LoraMatch& match : matches)
      if (!is_pair(*match.entry))
        throw NoForm{match.entry, fmt::format("{} of {} cannot be put together with what else changes it",
                                              match.entry->kind == LoraKind::lora ? "a Tucker decomposition"
                                                                                  : lora_kind_name(match.entry->kind),
                                              first.place.module)};
    together(matches, shape, module);
    if (std::ranges::any_of(matches, [](const LoraMatch& m) { return m.entry->has(magnitude); }))
      join_magnitudes(matches, shape, module);
  }

  void add_bias(const std::string& bias, const std::vector<LoraMatch>& matches) {
    HostTensor sum(Desc{DType::f32, weights_.at(bias).shape});
    for (const LoraMatch& match : matches) {
      const HostTensor own = in_order(read_f32(file_, match.entry->tensor(diff_bias)), match.place);
      std::ranges::copy(own.as<float>(), sum.as<float>().begin() + match.place.first_row);
    }
    at(matches.front().place.module).others.emplace_back("diff_b", std::move(sum));
  }

  std::vector<LoraModule> take() {
    std::vector<LoraModule> list;
    for (auto& [name, module] : modules_) list.push_back(std::move(module));
    return list;
  }

 private:
  LoraModule& at(const std::string& name) {
    LoraModule& module = modules_[name];
    module.name = name;
    return module;
  }

  // Rows of its up, or of its whole change, are rows of the weight.
  static bool moves_rows(const LoraEntry& entry) { return is_pair(entry) || entry.kind == LoraKind::full; }

  // As kohya's and LyCORIS' files have it, whatever the file's own tool wrote.
  static std::string end_of_key(const LoraEntry& entry, LoraPart part) {
    switch (part) {
      case down: return "lora_down.weight";
      case up: return "lora_up.weight";
      case mid: return "lora_mid.weight";
      default: return entry.tensor(part).name.substr(entry.name.size() + 1);
    }
  }

  void as_stored(const LoraMatch& match, const Shape& weight, LoraModule& module) const {
    const LoraEntry& entry = *match.entry;
    if (is_pair(entry)) {
      HostTensor right = read_f32(file_, entry.tensor(down)),
                 left = in_order(read_f32(file_, entry.tensor(up)), match.place);
      right.desc.shape = down_shape(weight, entry.rank), left.desc.shape = up_shape(weight, entry.rank);
      set_pair(module, std::move(right), std::move(left), entry.scale());
    } else {
      module.alpha = entry.alpha.value_or(0);
      module.rank = entry.rank;
      for (const auto& [part, tensor] : entry.parts) {
        if (part == alpha || part == magnitude || part == diff_bias) continue;
        HostTensor values = read_f32(file_, *tensor.stored);
        if (part == diff) values = in_order(std::move(values), match.place);
        module.others.emplace_back(end_of_key(entry, part), std::move(values));
      }
    }
    if (entry.has(magnitude)) join_magnitudes({match}, weight, module);
  }

  // An alpha of 0 is a change of 0, and no alpha to a LoraModule.
  static void set_pair(LoraModule& module, HostTensor down_values, HostTensor up_values, double scale) {
    const auto rank = static_cast<double>(down_values.desc.shape[0]);
    if (scale == 0) std::ranges::fill(up_values.as<float>(), 0.0f);
    module.alpha = scale == 0 ? rank : scale * rank;
    module.down = std::move(down_values), module.up = std::move(up_values);
  }

  // Scales that differ are put into up beside the first one's.
  void together(const std::vector<LoraMatch>& matches, const Shape& weight, LoraModule& module) const {
    double scale = 0;
    for (const LoraMatch& match : matches)
      if (scale == 0) scale = match.entry->scale();
    ProductSum sum(weight[0], weight.with(0, 1).numel());
    for (const LoraMatch& match : matches)
      sum.add(lora_of(file_, *match.entry), scale == 0 ? 0 : match.entry->scale() / scale, match.place);
    LoraModule made = pair_module(module.name, sum.product(), weight);
    set_pair(module, std::move(made.down), std::move(made.up), scale);
  }

  void join_magnitudes(const std::vector<LoraMatch>& matches, const Shape& weight, LoraModule& module) const {
    const int64_t inputs = weight.rank() > 1 ? weight[1] : 1;
    const auto axis_of = [&](const LoraMatch& match) {
      return magnitude_axis(match.entry->shape(magnitude), match.place.rows, inputs);
    };
    int64_t rows = 0;
    for (const LoraMatch& match : matches) rows += match.entry->has(magnitude) ? match.place.rows : 0;
    const bool whole = matches.size() == 1 && matches[0].place.whole;
    if (whole && axis_of(matches[0]) == MagnitudeAxis::input) {
      const HostTensor own = read_f32(file_, matches[0].entry->tensor(magnitude));
      module.others.emplace_back(
          magnitude_key, HostTensor::from_floats(magnitude_shape(weight, MagnitudeAxis::input), own.as<float>()));
      return;
    }
    HostTensor all(Desc{DType::f32, magnitude_shape(weight, MagnitudeAxis::output)});
    for (const LoraMatch& match : matches) {
      if (rows != weight[0] || axis_of(match) != MagnitudeAxis::output)
        throw NoForm{match.entry, fmt::format("its DoRA magnitude is for a part of {} alone", module.name)};
      const HostTensor own = in_order(read_f32(file_, match.entry->tensor(magnitude)), match.place);
      std::ranges::copy(own.as<float>(), all.as<float>().begin() + match.place.first_row);
    }
    module.others.emplace_back(magnitude_key, std::move(all));
  }

  const LoraFile& file_;
  const std::map<std::string, Desc>& weights_;
  std::map<std::string, LoraModule> modules_;
};

}  // namespace

LoraModule pair_module(const std::string& name, const LoraProduct& product, const Shape& weight) {
  return {.name = name,
          .down = HostTensor::from_floats(down_shape(weight, product.rank), product.right),
          .up = HostTensor::from_floats(up_shape(weight, product.rank), product.left),
          .alpha = static_cast<double>(product.rank)};
}

std::pair<std::string, std::string> small_key(const std::string& weight) {
  for (const auto& [end, key] : {std::pair(".weight", "diff"), std::pair(".bias", "diff_b")})
    if (weight.ends_with(end)) return {weight.substr(0, weight.size() - std::string_view(end).size()), key};
  return {weight, "diff"};
}

std::vector<LoraModule> modules_of(const LoraFile& file, const LoraNameTable& names,
                                   const std::map<std::string, Desc>& weights, Unmatched unmatched) {
  ModuleMaker maker(file, weights);
  std::vector<LoraProblem> problems;
  for (const auto& [weight, matches] : match_lora(file, names, weights, unmatched)) try {
      if (matches.front().bias)
        maker.add_bias(weight, matches);
      else
        maker.add_weight(weight, matches);
    } catch (const NoForm& problem) {
      problems.push_back({problem.entry->name, problem.why});
    }
  if (!problems.empty())
    fail(Code::data, "{}: {} of its modules have no other spelling:{}\n{}", file.file->path().string(), problems.size(),
         listed(problems), instead);
  return maker.take();
}

std::vector<LoraModule> modules_of(const LoraFile& file, const ForeignLora& adapter, const LoraNameTable& names,
                                   const std::map<std::string, Desc>& weights) {
  const ForeignFile found = read_foreign(file.file, adapter, names, weights);
  if (!found.problems.empty())
    fail(Code::data, "{}: {} of its parts cannot be applied to this model by {}:{}", file.file->path().string(),
         found.problems.size(), adapter.name(), listed(found.problems));
  std::vector<LoraModule> modules;
  for (const ForeignModule& own : found.modules) {
    LoraModule& module = modules.emplace_back(LoraModule{.name = own.module, .down = {}, .up = {}});
    std::string name;  // as the file spells it
    for (const auto& [key, tensor] : own.tensors) {
      name = tensor->name.substr(0, tensor->name.size() - key.size());
      module.others.emplace_back(key, converted(file.file->read(tensor->name), DType::f32));
    }
    if (const StoredTensor* value = file.file->find(name + "alpha"); value != nullptr)
      module.alpha = read_f32(file, *value).as<float>()[0];
  }
  return modules;
}

std::string format_of(const LoraFile& file, const LoraNameTable& names, const CheckpointSpec& spec) {
  std::array<int64_t, lora_formats.size()> modules{};  // that are named as the format names them
  for (const LoraEntry& entry : file.entries)
    if (const LoraPlace* place = names.find(entry.name))
      for (size_t i = 0; i < lora_formats.size(); ++i) {
        const auto spellings = format_spellings(spec.component(place->component)->lora, lora_formats[i]);
        modules[i] += !spellings.empty() && place->spelled(spellings.front()) == entry.name;
      }
  return lora_formats[static_cast<size_t>(std::ranges::max_element(modules) - modules.begin())];
}

}  // namespace lh
