// The commands and flags of lora-host as CLI11 sees them: names, help texts and examples, no meaning yet.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "config/model_keys.h"

namespace lh {

// A command line split into flags and values.
struct Arguments {
  std::string command;  // empty: none was given
  std::string text;     // not empty: help, to be printed
  bool version = false;
  FlagValues values;
  std::map<std::string, std::string> given;  // key of a plugin -> value of its flag
  std::vector<std::string> plugin_dirs, ctl_arguments, datasets, loras, images, programs;
  std::string config_file, dataset_config, model, checkpoint, resume, resume_from, replay, ctl_command, input, output,
      seed, repeats, text_length, into, rank, energy, card, link, models, purpose, vram, from, port, processes,
      restarts;
  std::vector<std::string> budgets;
  bool times = false, tune = false, json = false, verbose = false;
  bool force = false, skip_unmatched = false, exact = false, biases = false;
  bool fp16 = false, bf16 = false, fp32 = false, dry_run = false, resume_given = false, allow_changes = false;
};

// What has to be known before a command line is read, because plugins have flags of their own.
struct FirstLook {
  std::string command, config_file, plugin, model;
  std::vector<std::string> plugin_dirs;
};
FirstLook first_look(int argc, const char* const* argv);

// Throws lh::Error(Code::config) for what is not a command line of lora-host. plugins: keys that have flags.
Arguments parse_arguments(int argc, const char* const* argv, const std::vector<PluginKeys>& plugins);

std::span<const ConfigFlag> model_flags();  // of every command that runs a model
std::span<const ConfigFlag> train_flags();
std::span<const ConfigFlag> init_flags();
std::span<const ConfigFlag> data_flags();  // of `check`: those of train_flags() that say how data is used
std::span<const ConfigFlag> sample_flags();
std::span<const ConfigFlag> lora_file_flags();  // of every command that writes a LoRA file

}  // namespace lh
