// What files of musubi-tuner say of a plugin's model, whose script has arguments of its own: `musubi_tuner` of the
// plugin's checkpoint YAML (docs/plugin-guide.md). Paths and settings are keys of `model:`.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lh {

struct MusubiModel {
  using Settings = std::map<std::string, std::string>;
  // What one word of an argument means.
  struct Word {
    std::string word;
    std::string refused;  // why it is not supported; empty: it is
    Settings set;
    std::map<std::string, std::string> paths;  // in place of those of the model
    double boundary = 0;                       // where `dit` is one of two experts: the sigma at which they part
    Settings above, below;                     // and which of them it is
    bool first_frame = false;                  // a picture of a prompt is what its clip begins with
  };
  enum class Patterns { added, instead, refused };

  std::string network_module;
  std::map<std::string, std::string> paths;        // argument -> key
  std::map<std::string, std::vector<Word>> words;  // argument -> its words
  std::vector<std::string> arguments;           // further ones of its script; which model a file is of may be told so
  Settings set;                                 // whatever a file says
  std::vector<std::string> left_out;            // modules with this in their names, which its network does not adapt
  std::vector<std::string> targets;             // patterns of all that it adapts; empty: what the plugin's own does
  Patterns exclude_patterns = Patterns::added;  // of a file: what becomes of left_out
  std::string by_size;                          // the timestep_sampling that the model's flux_shift is
  bool guidance_in_model = false;               // --g of a prompt is its guidance, else --l is
  double fps = 16;                              // of models of videos
  std::string note;                             // for who reads the plan
};

}  // namespace lh
