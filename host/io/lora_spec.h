// What a plugin's `checkpoint` YAML says about LoRA files: the prefixes of its components' module names, and which
// program loads which keys (docs/plugin-guide.md).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/pattern.h"
#include "core/tensor.h"

namespace lh {

// The part of a module's name behind its prefix. `native` is the canonical name, `diffusers` that of the key map.
enum class LoraForm {
  native,          // blocks.0.attn.qkv
  native_flat,     // blocks_0_attn_qkv
  diffusers,       // blocks.0.attn.to_q
  diffusers_flat,  // blocks_0_attn_to_q
  processor,       // blocks.0.attn.processor.to_q: diffusers before it used PEFT
};

// A way to spell the names of modules, "lora_unet_{native_}".
struct LoraSpelling {
  std::string prefix;
  LoraForm form = LoraForm::native;
  std::string text() const;
  bool operator==(const LoraSpelling&) const = default;
};

// A name that LoRA files have for some rows of a module: [first, end) in units of the module's inputs. Both names are
// patterns of key maps, "blocks.{i}.qkv".
struct LoraPartName {
  std::string name, of;
  int64_t first = 0, end = 0;
};

// A component's prefixes: the first of each is written, all are read. Empty: no program knows such names.
struct LoraNames {
  std::vector<std::string> kohya, diffusers, native;
  std::vector<LoraPartName> parts;  // in the native spellings
  bool empty() const { return kohya.empty() && diffusers.empty() && native.empty(); }
};

// Keys that a program loads: every tensor named in `tensors` of every module named as one of `names`.
struct LoraLoaderRule {
  std::vector<std::string> components;
  std::vector<LoraSpelling> names;
  std::set<std::string> tensors;           // families of io/lora_keys.h
  std::vector<Pattern> only, except;       // whole canonical module names
  std::vector<std::string> not_beside;     // not where the file has a key with one of these prefixes
  std::string not_of;                      // not of models that have this weight
  std::map<std::string, Shape> full_size;  // weights that must have these shapes
  bool one_rank = false;                   // all modules of a component must have one rank
};

struct LoraLoader {
  std::string program;
  std::vector<LoraLoaderRule> rules;
};

}  // namespace lh
