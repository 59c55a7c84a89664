// One case for each source of an input.
#include "encode/denoiser_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/rows.h"
#include "encode/latent_shape.h"

namespace lh {
namespace {

using Source = InputSpec::Source;
using Rows = std::vector<InputRow>;

struct NamedNumber {
  std::string_view name;
  float ImageNumbers::*member;
};
constexpr NamedNumber number_table[] = {{"original_height", &ImageNumbers::original_height},
                                        {"original_width", &ImageNumbers::original_width},
                                        {"crop_top", &ImageNumbers::crop_top},
                                        {"crop_left", &ImageNumbers::crop_left},
                                        {"height", &ImageNumbers::height},
                                        {"width", &ImageNumbers::width}};

float number_of(const InputSpec::Number& number, const ImageNumbers& sizes) {
  const auto named = std::ranges::find(number_table, number.name, &NamedNumber::name);
  return named == std::end(number_table) ? static_cast<float>(number.value) : sizes.*(named->member);
}

double level_of(const InputSpec& spec, const NoiseLevel& level) {
  if (spec.source == Source::time) return spec.of.empty() ? level.time : level.end.value_or(level.time);
  if (spec.source == Source::sigma) return level.sigma;
  return 2 * std::log(level.alpha / level.sigma);
}

const HostTensor& output_of(const InputRow& row, const std::string& output) {
  const auto found = row.conditioning->find(output);
  if (found == row.conditioning->end()) fail(Code::internal, "no conditioning '{}' for a prompt", output);
  return found->second;
}

// Rows [1, n, ...] of each sample one after another as [B, length, ...], zeros behind them.
HostTensor padded(const std::vector<const HostTensor*>& rows, int64_t length) {
  const Desc& first = rows[0]->desc;
  std::vector<int64_t> dims(first.shape.dims().begin(), first.shape.dims().end());
  dims[0] = static_cast<int64_t>(rows.size());
  dims[1] = length;
  HostTensor out(Desc{first.dtype, Shape(dims)});
  const size_t each = out.data.size() / rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->data.size() > each)
      fail(Code::internal, "{} rows of conditioning where there is room for {}", rows[i]->desc.shape[1], length);
    std::memcpy(out.data.data() + i * each, rows[i]->data.data(), rows[i]->data.size());
  }
  return out;
}

}  // namespace

HostTensor made_up(const Shape& shape) {
  HostTensor tensor(Desc{DType::f32, shape});
  const std::span<float> values = tensor.as<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 97) - 0.5f;
  return tensor;
}

std::string length_size(const std::string& input) { return input + "_length"; }

HostTensor DenoiserInputs::make(const std::string& name, const InputSpec& spec, const Rows& rows,
                                const Sizes& sizes) const {
  const auto batch = static_cast<int64_t>(rows.size());
  const auto numbers = [&](int64_t each, const auto& value) {  // value(row, index)
    std::vector<float> list;
    for (const InputRow& row : rows)
      for (int64_t i = 0; i < each; ++i) list.push_back(static_cast<float>(value(row, static_cast<size_t>(i))));
    return HostTensor::from_floats(each == 1 ? Shape{batch} : Shape{batch, each}, list);
  };
  switch (spec.source) {
    case Source::conditioner: {
      std::vector<const HostTensor*> parts;
      for (const InputRow& row : rows) parts.push_back(&output_of(row, spec.of));
      return parts[0]->desc.shape.rank() < 3 ? stack_rows(parts) : padded(parts, sizes.at(length_size(name)));
    }
    case Source::mask:
    case Source::lengths: {
      const bool mask = spec.source == Source::mask;
      const int64_t each = mask ? sizes.at(length_size(spec.of)) : 1;
      std::vector<int32_t> list;
      for (const InputRow& row : rows) {
        const int64_t there = output_of(row, recipe_.inputs.at(spec.of).of).desc.shape[1];
        if (!mask) list.push_back(static_cast<int32_t>(there));
        for (int64_t i = 0; mask && i < each; ++i) list.push_back(i < there ? 1 : 0);
      }
      return HostTensor::from_ints(mask ? Shape{batch, each} : Shape{batch}, list);
    }
    case Source::time:
    case Source::sigma:
    case Source::log_snr: {
      const int64_t tokens = spec.per_token ? latent_tokens(recipe_.latents, sizes) : 1;
      HostTensor levels = numbers(tokens, [&](const InputRow& row, size_t) { return level_of(spec, row.level); });
      if (spec.per_token) levels.desc.shape = Shape{batch, tokens};
      return levels;
    }
    case Source::guidance: return numbers(1, [](const InputRow& row, size_t) { return row.guidance; });
    case Source::constant: return numbers(1, [&](const InputRow&, size_t) { return spec.value; });
    case Source::sizes: {
      const auto count = static_cast<int64_t>(spec.numbers.size());
      HostTensor out =
          numbers(count, [&](const InputRow& row, size_t i) { return number_of(spec.numbers[i], row.sizes); });
      out.desc.shape = Shape{batch, count};
      return out;
    }
    case Source::image:
    case Source::inpaint:
    case Source::first_frame:
    case Source::given: {
      std::vector<const HostTensor*> parts;
      for (const InputRow& row : rows) {
        const auto found = row.images.find(name);
        if (found == row.images.end()) fail(Code::internal, "no image '{}' for a sample", spec.of);
        parts.push_back(&found->second);
      }
      return stack_rows(parts);
    }
  }
  fail(Code::internal, "input '{}' has no source", name);
}

NamedTensors DenoiserInputs::batch(const Rows& rows, const Sizes& sizes) const {
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs)
    if (!spec.of_prompt() || rows[0].conditioning != nullptr) out.emplace(name, make(name, spec, rows, sizes));
  return out;
}

NamedTensors DenoiserInputs::of_prompts(const Rows& rows, const Sizes& sizes) const {
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs)
    if (spec.of_prompt()) out.emplace(name, make(name, spec, rows, sizes));
  return out;
}

NamedTensors DenoiserInputs::pattern(const Graph& denoiser) const {
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs) {
    const auto asked = denoiser.inputs.find(name);
    if (spec.source == Source::conditioner && asked != denoiser.inputs.end())
      out.emplace(spec.of, made_up(denoiser.desc(asked->second).shape.with(0, 1)));
  }
  return out;
}

NamedTensors DenoiserInputs::pattern_images(const Sizes& sizes) const {
  const LatentSpec& latents = recipe_.latents;
  const int64_t h = sizes.at("height"), w = sizes.at("width");
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs) {
    if (spec.source == Source::inpaint)
      out.emplace(
          name,
          made_up({1, h, w, spec.of == inpaint_mask_key ? latents.downscale * latents.downscale : latents.channels}));
    if (spec.source == Source::given) out.emplace(name, made_up({1}));
    if (spec.source == Source::first_frame) {
      Sizes shown = sizes;
      if (spec.starts) shown["time"] = 1;
      out.emplace(name, made_up(latent_shape(latents, shown, 1, latents.channels)));
    }
    if (spec.source != Source::image) continue;
    switch (spec.image) {
      case InputSpec::Image::latents: out.emplace(name, made_up({1, h, w, latents.channels})); break;
      case InputSpec::Image::pixels:
        out.emplace(name, made_up({1, h * latents.downscale, w * latents.downscale, 3}));
        break;
      case InputSpec::Image::mask: out.emplace(name, made_up({1, h, w, 1})); break;
    }
  }
  return out;
}

}  // namespace lh
