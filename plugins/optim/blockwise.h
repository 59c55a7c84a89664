// A state in 8 bits (Dettmers et al. 2022): codes of the dynamic map with one float32 factor for each 256 elements of
// the flat tensor. Tensors with fewer elements than `least` keep it in float32, as bitsandbytes does.
#pragma once

#include "optimizers.h"

namespace optim {

inline constexpr const char* min_8bit_size_help = "Tensors with fewer elements keep float32 states.";

class BlockwiseState {
 public:
  // `factors` names the state of the factors. Both outlive the rule.
  BlockwiseState(const char* name, const char* factors, bool is_signed, int64_t least)
      : name_(name), factors_(factors), signed_(is_signed), least_(least) {}

  bool small(const Parameter& p) const { return p.elements() < least_; }

  void add_to(States& states, const Parameter& p, int32_t meaning) const {
    State codes = State::like(p, name_, meaning);
    if (!small(p)) {
      codes.dtype = LH_U8;
      State factors{factors_, {(p.elements() + 255) / 256}};
      factors.meaning = meaning;
      states.push_back(factors);
    }
    states.push_back(codes);
  }

  Value read(UpdateGraph& g, const Parameter& p) const {
    if (small(p)) return g.state(name_);
    return g.dequantize_blockwise(g.state(name_), g.state(factors_), signed_);
  }

  void write(UpdateGraph& g, const Parameter& p, Value x) const {
    if (small(p)) return g.set(name_, x);
    const std::vector<Value> parts = g.quantize_blockwise(x, signed_);
    g.set(name_, parts[0]);
    g.set(factors_, parts[1]);
  }

 private:
  const char *name_, *factors_;
  bool signed_;
  int64_t least_;
};

}  // namespace optim
