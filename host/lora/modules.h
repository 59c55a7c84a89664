// The modules of a LoRA file of any spelling by the names of the model, as write_lora takes them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/foreign_lora.h"
#include "io/lora_file.h"
#include "io/lora_match.h"
#include "io/lora_products.h"

namespace lh {

// The pair [rank, in, ...], [out, rank, ...] of a product for a weight [out, in, ...], at a scale of 1.
LoraModule pair_module(const std::string& name, const LoraProduct& product, const Shape& weight);

// The module that a weight or bias belongs to, and the end of the key under which a LoRA file has its change as it is:
// "diff_b" of a bias, "diff" of a weight.
std::pair<std::string, std::string> small_key(const std::string& weight);

// Tensors bit for bit, alphas as they are. A pair without an alpha gets the one of its scale. Parts of a fused weight
// become one module: bit for bit where they share their down matrix and scale, else with the sum of their ranks. Throws
// lh::Error(Code::data) that lists what has no such form: parts of other adapters than pairs.
std::vector<LoraModule> modules_of(const LoraFile& file, const LoraNameTable& names,
                                   const std::map<std::string, Desc>& weights, Unmatched unmatched);
// The same of a plugin's adapter: the tensors by the ends of their keys.
std::vector<LoraModule> modules_of(const LoraFile& file, const ForeignLora& adapter, const LoraNameTable& names,
                                   const std::map<std::string, Desc>& weights);

// "kohya", "comfyui" or "diffusers": the format whose names most modules of the file have; kohya where none has.
std::string format_of(const LoraFile& file, const LoraNameTable& names, const CheckpointSpec& spec);

}  // namespace lh
