// What several samplers share.
#include "samplers.h"

#include <algorithm>
#include <cmath>

namespace samplers {

Ancestral ancestral(double from, double to, double eta) {
  const double ratio = to / from, fresh = 1 - ratio * ratio;
  const double up = std::min(to, eta * to * std::sqrt(fresh));
  // With eta 1 this is to ratio, to the last bit.
  const double down = to * std::sqrt(std::max(0.0, ratio * ratio + (1 - eta * eta) * fresh));
  return {up < to ? down : 0, up};
}

Names weights_of(const Names& tensors) {
  Names names;
  for (const std::string& tensor : tensors) names.push_back("of_" + tensor);
  return names;
}

Names history(const std::string& tensor, uint32_t depth) {
  Names names;
  for (uint32_t i = 1; i <= depth; ++i) names.push_back(tensor + "_" + std::to_string(i));
  return names;
}

Value Stage::input(const std::string& name, const Dims& dims) {
  const auto [known, added] = inputs_.try_emplace(name);
  if (added) known->second = g.input(name, dims, LH_F32);
  return known->second;
}

Value Stage::sum(const Names& tensors) {
  Value sum;
  for (const std::string& name : tensors) {
    Value part = g.mul(tensor(name), number("of_" + name));
    sum = sum ? g.add(sum, part) : part;
  }
  return sum;
}

void Stage::keep(const std::string& name, uint32_t depth) {
  std::string newer = name;
  for (const std::string& older : history(name, depth)) {
    g.output(older, tensor(newer));
    newer = older;
  }
}

SumSampler::SumSampler(Names tensors, const std::string& kept, uint32_t depth)
    : tensors_(std::move(tensors)), kept_(kept), depth_(depth) {
  for (const std::string& name : history(kept, depth)) tensors_.push_back(name);
}

Numbers SumSampler::scalar_values(const Step& step, uint32_t /*stage*/) const {
  Numbers numbers = weights(step);
  numbers.resize(tensors_.size());  // steps without a history leave it out
  return numbers;
}

void SumSampler::build(Graph& g, uint32_t /*stage*/, const Dims& latents) const {
  Stage stage(g, latents);
  g.output("x", stage.sum(tensors_));
  if (depth_ > 0) stage.keep(kept_, depth_);
}

}  // namespace samplers
