// What the commands that write LoRA files have in common: where they may write, and what they say at the end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/options.h"
#include "io/lora_file.h"
#include "plugin/model.h"

namespace lh {

// Before anything is computed: --out is none of the inputs, and no file that is there unless --force. Makes its folder
// and takes away what a killed command left in it.
void prepare_output(const Options& options, const std::vector<std::filesystem::path>& inputs);

// The model of the command line, tried in a child first.
std::unique_ptr<Model> open_model(const Options& options);

// Entries of metadata that a model gives its LoRA files.
std::map<std::string, std::string> model_metadata(const Model& model);

// The file that was written, in the words of verify; without a model, how to get them.
void say_written(const Options& options, const Model* model);

}  // namespace lh
