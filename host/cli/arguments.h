// The commands and flags of lora-host as CLI11 sees them: names, help texts and examples, no meaning yet.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace lh {

// A command line split into flags and values.
struct Arguments {
  std::string command;  // empty: none was given
  std::string text;     // not empty: help, to be printed
  bool version = false;
  FlagValues values;
  std::vector<std::string> plugin_dirs, datasets, loras, programs;
  std::string config_file, model, checkpoint, resume, input, output, seed, repeats, text_length;
  bool recompute = false, times = false, json = false;
  bool fp16 = false, bf16 = false, fp32 = false, dry_run = false, resume_given = false;
};

// Throws lh::Error(Code::config) for what is not a command line of lora-host.
Arguments parse_arguments(int argc, const char* const* argv);

std::span<const ConfigFlag> model_flags();  // of every command that runs a model
std::span<const ConfigFlag> train_flags();
std::span<const ConfigFlag> sample_flags();

}  // namespace lh
