// The checks of operations on an array of layers.
#pragma once

#include <string>
#include <vector>

#include "check.h"

namespace lk {

inline std::string layer_name(const char* op, int32_t i) { return std::string(op) + ": layer " + std::to_string(i); }

// The structs lie side by side, so that they have to have the size that they have here.
template <class Layer>
void check_layers(const Check& check, const Layer* layers, int32_t count, int32_t most) {
  check.require(layers != nullptr, "layers", "an array of parameters", "NULL");
  check.require(count >= 1 && count <= most, "count", "1 to " + std::to_string(most), std::to_string(count));
  for (int32_t i = 0; i < count; ++i)
    check.require(layers[i].struct_size == static_cast<int64_t>(sizeof(Layer)), "layers",
                  "struct_size " + std::to_string(sizeof(Layer)) + " in each",
                  std::to_string(layers[i].struct_size) + " in layer " + std::to_string(i));
}

inline void separate(const Check& check, const Arg& output, const std::vector<Arg>& others) {
  for (const Arg& other : others) check.separate(output, {other});
}

// What each writes and others read or write; of itself each was asked before.
template <class Layer>
void check_layers_apart(const char* op, const Layer* layers, int32_t count, std::vector<Arg> (*read_by)(const Layer&),
                        std::vector<Arg> (*written_by)(const Layer&)) {
  for (int32_t i = 0; i < count; ++i) {
    const std::string name = layer_name(op, i);
    const Check check(name.c_str());
    for (int32_t other = 0; other < count; ++other) {
      if (other == i) continue;
      for (const Arg& output : written_by(layers[i])) {
        separate(check, output, read_by(layers[other]));
        if (other > i) separate(check, output, written_by(layers[other]));
      }
    }
  }
}

}  // namespace lk
