// The table of suffixes that tools give to the tensors of a module.
#include "io/lora_keys.h"

#include <algorithm>
#include <array>

namespace lh {
namespace {

struct Suffix {
  std::string_view text;
  LoraPart part;
  std::string_view family;
  std::string_view why = {};
};

using enum LoraPart;

// No suffix is the end of another one, so their order means nothing.
constexpr std::array suffixes{
    Suffix{".lora_down.weight", down, "lora_down"},
    Suffix{".lora_up.weight", up, "lora_down"},
    Suffix{".lora_A.weight", down, "lora_A"},
    Suffix{".lora_B.weight", up, "lora_A"},
    Suffix{".lora_A.default.weight", down, "lora_A.default"},
    Suffix{".lora_B.default.weight", up, "lora_A.default"},
    Suffix{".lora_A", down, "lora_A.bare"},
    Suffix{".lora_B", up, "lora_A.bare"},
    Suffix{".lora.down.weight", down, "lora.down"},
    Suffix{".lora.up.weight", up, "lora.down"},
    Suffix{"_lora.down.weight", down, "_lora.down"},
    Suffix{"_lora.up.weight", up, "_lora.down"},
    Suffix{".lora_linear_layer.down.weight", down, "lora_linear_layer"},
    Suffix{".lora_linear_layer.up.weight", up, "lora_linear_layer"},
    Suffix{".lora_mid.weight", mid, "lora_mid"},
    Suffix{".alpha", alpha, "alpha"},
    Suffix{".dora_scale", magnitude, "dora_scale"},
    Suffix{".lora_magnitude_vector", magnitude, "lora_magnitude_vector"},
    Suffix{".lora_magnitude_vector.weight", magnitude, "lora_magnitude_vector"},
    Suffix{".lora_magnitude_vector.default.weight", magnitude, "lora_magnitude_vector"},
    Suffix{".hada_w1_a", hada_w1_a, "loha"},
    Suffix{".hada_w1_b", hada_w1_b, "loha"},
    Suffix{".hada_w2_a", hada_w2_a, "loha"},
    Suffix{".hada_w2_b", hada_w2_b, "loha"},
    Suffix{".hada_t1", hada_t1, "loha"},
    Suffix{".hada_t2", hada_t2, "loha"},
    Suffix{".lokr_w1", lokr_w1, "lokr"},
    Suffix{".lokr_w1_a", lokr_w1_a, "lokr"},
    Suffix{".lokr_w1_b", lokr_w1_b, "lokr"},
    Suffix{".lokr_w2", lokr_w2, "lokr"},
    Suffix{".lokr_w2_a", lokr_w2_a, "lokr"},
    Suffix{".lokr_w2_b", lokr_w2_b, "lokr"},
    Suffix{".lokr_t2", lokr_t2, "lokr"},
    Suffix{".diff", diff, "diff"},
    Suffix{".diff_b", diff_bias, "diff_b"},
    Suffix{".w_norm", diff, "norm"},
    Suffix{".b_norm", diff_bias, "norm"},
    Suffix{".lora_B.bias", unsupported, "other", "a bias of the up matrix"},
    Suffix{".set_weight", unsupported, "other", "a weight that replaces the model's"},
    Suffix{".reshape_weight", unsupported, "other", "a new shape for the model's weight"},
    Suffix{".on_input", unsupported, "other", "part of an IA3 adapter"},
    Suffix{".oft_blocks", unsupported, "other", "part of an OFT adapter"},
    Suffix{".oft_diag", unsupported, "other", "part of an OFT adapter"},
    Suffix{".oft_R.weight", unsupported, "other", "part of an OFT adapter"},
    Suffix{".rescale", unsupported, "other", "part of a BOFT adapter"},
    Suffix{".a1.weight", unsupported, "other", "part of a GLoRA adapter"},
    Suffix{".a2.weight", unsupported, "other", "part of a GLoRA adapter"},
    Suffix{".b1.weight", unsupported, "other", "part of a GLoRA adapter"},
    Suffix{".b2.weight", unsupported, "other", "part of a GLoRA adapter"},
};

// ".lora_A.NAME.weight": PEFT's pairs of an adapter that has a name of its own.
std::optional<LoraKey> named_adapter(const std::string& key) {
  constexpr std::string_view end = ".weight";
  for (const auto& [middle, part] : {std::pair{".lora_A.", down}, std::pair{".lora_B.", up}}) {
    const size_t at = key.rfind(middle), name = at + std::string_view(middle).size();
    if (at == std::string::npos || at == 0 || !key.ends_with(end) || name + end.size() >= key.size()) continue;
    if (key.find('.', name) != key.size() - end.size()) continue;
    return LoraKey{key.substr(0, at), part, "lora_A.named", {}};
  }
  return std::nullopt;
}

void add_once(std::vector<std::string_view>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace

std::optional<LoraKey> split_lora_key(const std::string& key) {
  for (const Suffix& suffix : suffixes)
    if (key.size() > suffix.text.size() && key.ends_with(suffix.text))
      return LoraKey{key.substr(0, key.size() - suffix.text.size()), suffix.part, suffix.family, suffix.why};
  return named_adapter(key);
}

std::vector<std::string_view> lora_pair_families() {
  std::vector<std::string_view> names;
  for (const Suffix& suffix : suffixes)
    if (suffix.part == down) add_once(names, suffix.family);
  return names;
}

std::vector<std::string_view> lora_families() {
  std::vector<std::string_view> names;
  for (const Suffix& suffix : suffixes)
    if (suffix.part != unsupported) add_once(names, suffix.family);
  names.push_back(output_axis_family);
  return names;
}

}  // namespace lh
