// Every command with its options, as CLI11 sees them: flags that are rows of the configuration have its types and
// texts.
#include "cli/command_table.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "cli/define.h"
#include "cli/examples.h"
#include "cli/plugin_flags.h"
#include "config/schema.h"
#include "config/value.h"

namespace lh {
namespace {

// "INTEGER", "PATH", "bf16|fp16|fp32".
std::string placeholder(const schema::Key& key) {
  std::string choices;
  for (const schema::Choice& choice : key.rules.choices)
    if (choice.spelling == choice.value) choices += fmt::format("{}{}", choices.empty() ? "" : "|", choice.spelling);
  if (!choices.empty()) return choices;
  std::string word = schema::type_name(key);
  word = word.substr(0, word.find(' '));
  if (word == "list") word = "text";
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return word;
}

std::string help_text(const ConfigFlag& flag, const schema::Key& key) {
  Config config;
  DatasetConfig dataset;
  const std::string standard = schema::print_value(key.field(config, dataset));
  const std::string_view text = flag.help.empty() ? key.doc : flag.help;
  return standard.empty() ? std::string(text) : fmt::format("{} [{}]", text, standard);
}

void add_flags(CLI::App* app, std::span<const ConfigFlag> flags, Arguments& raw) {
  for (const ConfigFlag& flag : flags) {
    const schema::Key& key = *schema::find(flag.key);
    const bool many = flag.key == "sample.prompts" || flag.key == "datasets[].resolution";
    app->add_option(std::string(flag.flag), raw.values[flag.flag], help_text(flag, key))
        ->expected(1)
        ->allow_extra_args(false)
        ->type_name(placeholder(key))
        ->multi_option_policy(many ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::Throw);
  }
}

// The last thing a command that opens a model gets, because a plugin's key does not take the flag of another option.
void add_plugin_flags(CLI::App* app, const std::vector<PluginKeys>& plugins, const std::string& model, Arguments& raw) {
  const auto taken = [&](const std::string& flag) {
    return app->get_option_no_throw(flag) != nullptr || app->get_parent()->get_option_no_throw(flag) != nullptr;
  };
  const auto flags = plugin_flags(plugins, taken);
  for (const auto& [flag, key] : flags) app->add_option(flag, raw.given[key])->group("");
  const auto named = std::ranges::find(plugins, model, &PluginKeys::plugin);
  const std::string help =
      named != plugins.end() ? plugin_flags_help({*named}, flags) : plugin_flags_summary(plugins, flags);
  app->footer(help + app->get_footer());
}

// The files of a model, for commands that look at them.
void add_model_files(CLI::App* app, Arguments& raw) {
  app->add_option("--config", raw.config_file, "Configuration file (docs/config.md).")->type_name("FILE");
  app->add_option("--model", raw.model, "Checkpoint file or diffusers directory, or the id of a model plugin.")
      ->type_name("PATH|ID");
  app->add_option("--checkpoint", raw.checkpoint, "Checkpoint, where --model names a plugin.")->type_name("PATH");
  add_flags(app, model_flags().first(1), raw);
}

// The same with how it runs.
void add_model(CLI::App* app, Arguments& raw) {
  add_model_files(app, raw);
  add_flags(app, model_flags().subspan(1), raw);
  app->add_flag("--fp16", raw.fp16, "Same as --dtype fp16.");
  app->add_flag("--bf16", raw.bf16, "Same as --dtype bf16.");
  app->add_flag("--fp32", raw.fp32, "Same as --dtype fp32.");
}

void add_loras(CLI::App* app, Arguments& raw) {
  app->add_option("--lora", raw.loras, "LoRA file with its strength, 1 unless given; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("FILE[:STRENGTH]");
}

void add_output(CLI::App* app, Arguments& raw, const char* what) {
  app->add_option("--out", raw.output, what)->required()->type_name("PATH");
  app->add_flag("--force", raw.force, "Replace the file that is there. An input is never replaced.");
}

void add_rank(CLI::App* app, Arguments& raw) {
  app->add_option("--rank", raw.rank, "At most this rank for each module.")->type_name("INTEGER");
  app->add_option("--energy", raw.energy,
                  "The smallest rank that keeps this share of each module's squared singular values.")
      ->type_name("NUMBER");
}

void add_images(CLI::App* command, const char* help, const char* value, Arguments& raw) {
  command->add_option("--image", raw.images, help)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name(value);
}

void add_dataset(CLI::App* app, Arguments& raw) {
  app->add_option("--dataset", raw.datasets, "Folder of images with captions; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("DIR");
}

void add_dataset_config(CLI::App* app, Arguments& raw) {
  app->add_option("--dataset-config,--dataset_config", raw.dataset_config,
                  "Datasets as kohya's scripts or musubi-tuner have them (docs/from-kohya.md, from-musubi.md).")
      ->type_name("FILE.toml");
}

}  // namespace

void define(CLI::App& app, const std::vector<PluginKeys>& plugins, const std::string& model, Arguments& raw) {
  app.name("lora-host");
  app.description("lora-host trains LoRA adapters for diffusion models.");
  app.footer(examples::program);
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.add_flag("--version", raw.version, "Show version, ABI and backends.");
  app.add_option("--plugin-dir", raw.plugin_dirs, "Further folder of plugins; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("DIR");

  auto* train = app.add_subcommand("train", "Train a LoRA.")->footer(examples::train);
  add_model(train, raw);
  add_dataset(train, raw);
  add_dataset_config(train, raw);
  add_flags(train, train_flags(), raw);
  train->add_option("--resume", raw.resume, "Go on from a checkpoint; without a path, from the latest of this run.")
      ->expected(0, 1)
      ->type_name("[PATH]");
  train
      ->add_option(
          "--resume-from", raw.resume_from,
          "With --resume: go on from the checkpoint of this step, or begin anew (none); later ones are renamed.")
      ->type_name("STEP|none");
  train->add_flag(
      "--allow-changes", raw.allow_changes,
      "With --resume: go on with other images or captions, batches, noise, clipping or versions; the break is "
      "noted in history.jsonl.");
  train->add_option("--replay", raw.replay, "Repeat what was set by hand in another run, at the same steps.")
      ->type_name("RUN_DIR");
  train
      ->add_option("--processes,--world", raw.processes, "Start so many with mpirun, one for each GPU (docs/scale.md).")
      ->type_name("N");
  train
      ->add_option("--restarts", raw.restarts,
                   "With --processes: go on from the last state where one is lost, so many times. [0]")
      ->type_name("N");
  train->add_flag("--dry-run", raw.dry_run, "Check files, data and memory, print the plan and stop.");
  train->add_flag("--verbose", raw.verbose, "With --dry-run: the whole configuration, all buckets and modules.");

  auto* init = app.add_subcommand("init", "Write a configuration to begin with, or turn another program's into one.")
                   ->footer(examples::init);
  init->add_option("--model", raw.model, "Checkpoint file or diffusers directory, or the id of a model plugin.")
      ->type_name("PATH|ID");
  init->add_option("--models", raw.models, "Folder to look for the model's files in. [models]")->type_name("DIR");
  init->add_option("--vram", raw.vram, "Memory of the card in GiB, or its name. [this machine's]")
      ->type_name("SIZE|CARD");
  add_dataset(init, raw);
  init->add_option("--for", raw.purpose, "What the LoRA is to learn.")
      ->check(CLI::IsMember({"subject", "style", "concept"}))
      ->type_name("subject|style|concept");
  add_images(init, "Folder with an image for each of the dataset, for models that are given some; may be repeated.",
             "KEY=DIR", raw);
  add_flags(init, init_flags(), raw);
  init->add_option("--from", raw.from, "Configuration of ai-toolkit, kohya's scripts or lora-host to be converted.")
      ->type_name("FILE");
  add_dataset_config(init, raw);
  init->add_option("--out", raw.output, "File to write. [train.yaml]")->type_name("FILE");
  init->add_flag("--force", raw.force, "Replace the file that is there.");

  auto* check =
      app.add_subcommand("check", "Look at training data: what is left out, twice there, small, badly captioned.")
          ->footer(examples::check);
  check->add_option("data", raw.input, "Folder of images with captions, or configuration file.")
      ->type_name("DATASET|CONFIG");
  add_model_files(check, raw);
  add_dataset(check, raw);
  add_dataset_config(check, raw);
  add_flags(check, data_flags(), raw);
  check->add_option("--out", raw.output, "Page with thumbnails. [NAME_check.html; with --json none]")
      ->type_name("FILE.html");
  check->add_flag("--json", raw.json, "Everything that is known, as JSON.");

  auto* watch = app.add_subcommand("watch", "Show a run on a page in the browser: loss, samples, time left.")
                    ->footer(examples::watch);
  watch->add_option("run", raw.input, "Folder of the run. [the newest in ./output]")->type_name("RUN_DIR");
  watch->add_option("--port", raw.port, "Port of 127.0.0.1, 0 for any that is free. [8765]")->type_name("N");

  auto* ctl = app.add_subcommand("ctl", "Speak to a run that is training.")->footer(examples::ctl);
  ctl->add_option("run", raw.input, "Folder of the run.")->required()->type_name("RUN_DIR");
  ctl->add_option("command", raw.ctl_command, "What it shall do.")->required()->type_name("COMMAND");
  ctl->add_option("arguments", raw.ctl_arguments, "What with.")->type_name("ARGUMENT...");

  auto* sample = app.add_subcommand("sample", "Make images.")->footer(examples::sample);
  add_model(sample, raw);
  add_flags(sample, sample_flags(), raw);
  add_loras(sample, raw);
  add_images(sample, "Image to work from, for models that are given some; may be repeated.", "KEY=FILE", raw);
  sample
      ->add_option("--out", raw.output, "Image file, or folder, in which images are numbered. [the working directory]")
      ->type_name("PATH");
  sample->add_flag("--force", raw.force, "Replace images that are there; in a folder from number 0 on.");

  auto* list = app.add_subcommand("plugins", "List the plugins that are found.")->footer(examples::plugins);
  list->add_flag("--verbose", raw.verbose, "Show what they take: files, settings, components, options.");

  auto* inspect = app.add_subcommand("inspect", "Show what a file holds.")->footer(examples::inspect);
  inspect->add_option("file", raw.input, "Checkpoint, LoRA, diffusers directory, image or video.")
      ->required()
      ->type_name("FILE");

  inspect->add_flag("--json", raw.json, "Everything that is known, as JSON.");

  auto* verify =
      app.add_subcommand("verify", "Check which programs load every key of a LoRA file.")->footer(examples::verify);
  verify->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_model_files(verify, raw);
  verify->add_option("--for", raw.programs, "Programs that have to load it, such as comfyui,kohya.")
      ->delimiter(',')
      ->type_name("PROGRAM");
  verify->add_flag("--json", raw.json, "Every key with its reason, as JSON.");

  auto* merge =
      app.add_subcommand("merge", "Merge LoRA files into a checkpoint, or into one LoRA.")->footer(examples::merge);
  add_loras(merge, raw);
  merge->add_option("--into", raw.into, "What is written.")
      ->required()
      ->check(CLI::IsMember({"checkpoint", "lora"}))
      ->type_name("checkpoint|lora");
  add_output(merge, raw, "File to write; for a model in several files a new folder.");
  add_rank(merge, raw);
  merge->add_flag("--skip-unmatched", raw.skip_unmatched, "Leave out modules that match no layer of the model.");

  auto* convert =
      app.add_subcommand("convert", "Write a LoRA file in another format or type.")->footer(examples::convert);
  convert->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_output(convert, raw, "File to write.");

  auto* extract = app.add_subcommand("extract", "Write what one checkpoint has and another has not as a LoRA.")
                      ->footer(examples::extract);
  extract->add_option("file", raw.input, "The tuned checkpoint: a file or diffusers directory.")
      ->required()
      ->type_name("PATH");
  add_output(extract, raw, "File to write.");
  add_rank(extract, raw);
  extract->add_flag("--exact", raw.exact, "All singular values of every layer, however long that takes.");
  extract->add_flag("--biases", raw.biases, "Biases and norms too, as they differ; not every program loads them.");

  auto* resize = app.add_subcommand("resize", "Write a LoRA file at another rank.")->footer(examples::resize);
  resize->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_output(resize, raw, "File to write.");
  add_rank(resize, raw);
  for (CLI::App* tool : {merge, convert, extract, resize}) {
    // resize keeps the names of its file.
    add_flags(tool, tool == resize ? lora_file_flags().first(1) : lora_file_flags(), raw);
    add_model_files(tool, raw);
    const bool as_it_was = tool == convert || tool == resize;
    tool->get_option("--save-dtype")
        ->description(as_it_was ? "Type of the tensors that are written. [as in the file]"
                                : "Type of the tensors that are written. [fp32; of a checkpoint, as in its file]");
    if (tool == convert || tool == merge)
      tool->get_option("--format")->description("Names in the file (docs/lora-files.md). [as in the first file]");
  }

  auto* make =
      app.add_subcommand("make-checkpoint", "Write a checkpoint of generated weights.")->footer(examples::make);
  make->add_option("--like", raw.input, "Key list: {\"tensors\": {name: [dtype, shape]}}.")
      ->required()
      ->type_name("KEYLIST");
  make->add_option("--seed", raw.seed, "Seed of the weights, 0 unless given.")->type_name("VALUE");
  make->add_flag("--force", raw.force, "Replace the file that is there.");
  make->add_option("out", raw.output, "File to write.")->required()->type_name("OUT");

  auto* bench = app.add_subcommand("bench", "Time training steps without a dataset.")->footer(examples::bench);
  add_model(bench, raw);
  add_flags(bench, train_flags(), raw);
  bench->add_option("--like", raw.input, "Key list to make weights from on the device, instead of a model file.")
      ->type_name("KEYLIST");
  bench->add_option("--repeat", raw.repeats, "Steps to time [20].")->type_name("N");
  bench->add_option("--processes,--world", raw.processes, "Start so many with mpirun: what it costs to train together.")
      ->type_name("N");
  bench->add_option("--text-length", raw.text_length, "Text tokens. [as the encoders give, or the longest tokenizer's]")
      ->type_name("N");
  bench->add_option("--link", raw.link, "Hold copies of streamed weights to a rate such as 12GB/s, and plan for it.")
      ->type_name("RATE");
  bench->get_option("--recompute")->expected(0, 1);  // alone: all of it
  bench->add_flag("--times", raw.times, "Show the time by op as well.");
  bench->add_flag("--tune", raw.tune,
                  "Show which kernels run, which algorithm each product takes, and why others do not.");

  auto* plan = app.add_subcommand("plan", "Show what a run takes of memory and time under several budgets.")
                   ->footer(examples::plan);
  add_model(plan, raw);
  add_dataset(plan, raw);
  add_flags(plan, train_flags(), raw);
  plan->remove_option(plan->get_option("--budget"));
  plan->add_option("--budget", raw.budgets, "Budgets to plan for: sizes such as 11.5GiB, or numbers of GiB.")
      ->delimiter(',')
      ->type_name("SIZE,...");
  plan->add_option("--card", raw.card, "The card to plan for, by name or by its figures, instead of this machine's.")
      ->type_name("CARD");
  plan->add_option("--link", raw.link, "Rate of copies from host memory to the device, such as 12GB/s.")
      ->type_name("RATE");
  plan->add_option("--like", raw.input, "Key list that stands for a model file.")->type_name("KEYLIST");
  plan->add_option("--text-length", raw.text_length, "Text tokens. [as the encoders give, or the longest tokenizer's]")
      ->type_name("N");

  for (CLI::App* command : {train, init, check, sample, verify, merge, convert, extract, resize, bench, plan})
    add_plugin_flags(command, plugins, model, raw);
  for (CLI::App* command : app.get_subcommands({})) command->fallthrough();
}

namespace {

CommandInfo info_of(const CLI::App& app) {
  CommandInfo info{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionInfo row{.value = option->get_items_expected_max() == 0 ? "" : option->get_type_name(),
                   .help = option->get_description(),
                   .positional = option->get_positional(),
                   .of_plugin = option->get_group().empty()};
    for (const std::string& name : option->get_lnames()) row.names.push_back(fmt::format("--{}", name));
    for (const std::string& name : option->get_snames()) row.names.push_back(fmt::format("-{}", name));
    if (row.positional) row.names = {option->get_name(true)};
    info.options.push_back(std::move(row));
  }
  return info;
}

}  // namespace

std::vector<CommandInfo> command_table(const std::vector<PluginKeys>& plugins) {
  Arguments raw;
  CLI::App app;
  define(app, plugins, "", raw);
  std::vector<CommandInfo> table{info_of(app)};
  for (const CLI::App* command : app.get_subcommands({})) table.push_back(info_of(*command));
  return table;
}

}  // namespace lh
