// LoRA files merged into the weights of a checkpoint as these are read, one file after the other:
//   W' = W + sum_i strength_i dW_i    in float32 (io/lora_delta.h), rounded once to the type of the weight.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/foreign_lora.h"
#include "io/lora_match.h"
#include "io/lora_names.h"
#include "io/lora_read.h"

namespace lh {

struct LoraInput {
  std::filesystem::path path;
  double strength = 1;
  std::shared_ptr<const ForeignLora> foreign = {};  // of a file that a plugin's adapter made
};
// FILE[:STRENGTH], as users give it. Throws lh::Error(Code::config) that begins with `what`, the flag or key.
LoraInput lora_input(const std::string& what, const std::string& text);

class LoraMerge {
 public:
  // Opens every file; throws lh::Error(Code::data) that lists the keys it cannot apply, why, and what to do.
  LoraMerge(const CheckpointSpec& spec, const std::map<std::string, Desc>& weights, const std::vector<LoraInput>& files,
            Unmatched unmatched = Unmatched::but_encoders);

  bool changes(const std::string& weight) const { return changes_.contains(weight); }
  // What the files change, each as it was opened and those of plugins' adapters aside: a file, its strength and its
  // module.
  struct Source {
    const LoraFile* file;
    double strength;
    LoraMatch match;
  };
  std::vector<Source> sources(const std::string& weight) const;
  bool changed_by_plugin(const std::string& weight) const;
  // The weights and biases that are changed.
  std::vector<std::string> weights() const;
  // Changes the values of a weight, which are in the order of files, [out, in, kh, kw].
  void apply(const std::string& weight, const Shape& shape, std::span<float> values) const;
  // Identifies what is done to a component; empty: nothing.
  std::string fingerprint(const std::string& component) const;

 private:
  struct Change {
    size_t file;  // of files_
    const LoraEntry* entry;
    LoraPlace place;
    bool bias;
    const ForeignModule* foreign = nullptr;  // in place of entry
  };
  void add(const LoraNameTable& names, const std::map<std::string, Desc>& weights, size_t file);
  void add_foreign(const LoraNameTable& names, const std::map<std::string, Desc>& weights, size_t file);
  std::vector<LoraInput> inputs_;
  Unmatched unmatched_;
  std::vector<LoraFile> files_;
  std::vector<ForeignFile> foreign_;                    // as many as files_; empty ones for others
  std::map<std::string, std::vector<Change>> changes_;  // by canonical weight
};

}  // namespace lh
