// Module names of LoRA files in the spellings of every tool, and the weights they stand for.
//
// A tool's name is a prefix and a form of the module's name (LoraSpelling). The names of a whole model are listed
// forwards, from its weights, because "_" for "." cannot be undone.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/key_map.h"

namespace lh {

// "lora_unet_{native_}"; nothing for a text that is no spelling.
std::optional<LoraSpelling> parse_spelling(const std::string& text);

// The formats that are written.
inline constexpr std::array<const char*, 3> lora_formats{"kohya", "comfyui", "diffusers"};

// How a component's modules are spelled in a format that is written, the written spelling
// first. After a prefix of kohya's stands the native name with "_" for ".", unless the text is a spelling itself.
std::vector<LoraSpelling> format_spellings(const LoraNames& names, const std::string& format);

// Every spelling in which modules of a component are read, the likeliest first.
std::vector<LoraSpelling> read_spellings(const CheckpointSpec& spec, const ComponentSpec& component);

// Rows of the parts that diffusers has of a module: equal ones; of four and more one for each input, the last the rest
// (q, k, v, an MLP); of three with fewer than these one for each input, then half the rest. Empty: they do not fit.
std::vector<int64_t> part_rows(int64_t rows, int64_t inputs, size_t parts);

// What the name of a module in a LoRA file stands for: a canonical weight or some of its rows.
struct LoraPlace {
  std::string component;
  std::string native;     // the component's own name of the module, "blocks.0.attn.qkv"
  std::string diffusers;  // of these rows in the key map; empty: it has none, or several
  std::string part;       // of these rows where they are not all of the module; empty: native names have none
  std::string module;     // as in adapters and weights: `native`, "<component>:" before it unless the denoiser's
  int64_t first_row = 0, rows = 0;
  bool whole = true;            // all rows of the weight
  bool swapped_halves = false;  // the file has the rows' halves the other way round
  // The name of these rows, in the order of the file, in a spelling; empty where it has none for them.
  std::string spelled(const LoraSpelling& spelling) const;
};

class LoraNameTable {
 public:
  // weights: canonical names and shapes of a checkpoint.
  LoraNameTable(const CheckpointSpec& spec, const std::map<std::string, Desc>& weights);
  // The place that a name of a LoRA file stands for; nullptr: none.
  const LoraPlace* find(const std::string& name) const;
  // The component whose names start like this one; empty: none.
  std::string component_by_prefix(const std::string& name) const;

 private:
  void add(const ComponentSpec& component, const std::string& native, const Shape& weight, const KeyMap& map);
  std::vector<std::pair<std::string, std::vector<LoraSpelling>>> spellings_;  // by component
  std::map<std::string, LoraPlace> places_;
  std::map<std::string, std::string> components_;  // by prefix of text encoders' names
};

// The same by the patterns of the key map alone, where no checkpoint is at hand.
class LoraNamePatterns {
 public:
  explicit LoraNamePatterns(const CheckpointSpec& spec);
  struct Match {
    std::string component;
    LoraSpelling spelling;
  };
  std::optional<Match> find(const std::string& name) const;

 private:
  struct Entry {
    KeyPattern pattern;
    Match match;
  };
  std::vector<Entry> entries_;
};

}  // namespace lh
