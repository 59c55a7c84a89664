// The command line as CLI11 sees it: commands, flags that are rows of the configuration, and help.
#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "cli/command_table.h"
#include "cli/plugin_flags.h"
#include "config/nearest.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"

namespace lh {
namespace {

constexpr std::string_view commands[] = {"train",           "ctl",   "sample",  "plugins", "inspect",
                                         "verify",          "merge", "convert", "extract", "resize",
                                         "make-checkpoint", "bench", "plan"};

constexpr ConfigFlag model_flags_rows[] = {
    {"--plugin", "plugin", ""},
    {"--device", "device", ""},
    {"--dtype", "train.dtype", ""},
    {"--model-dtype", "model.dtype",
     "Type in which the base weights are kept: float8_e4m3 or int8 for half the memory of bf16, nf4 for a quarter."},
    {"--products", "model.products",
     "Numbers in which layers with LoRA multiply: float8 or int8, with a --model-dtype of 8 bits, for speed."},
    {"--budget", "memory.budget", "Device memory that may be taken: 12GiB, or a number of GiB."},
    {"--stream", "memory.stream", ""},
};
constexpr ConfigFlag train_flags_rows[] = {
    {"--adapter", "network.type", "Adapter, by the id its plugin gives it: lora, dora, loha, lokr, full."},
    {"--rank", "network.linear", "Rank of the adapters."},
    {"--alpha", "network.linear_alpha", "Adapters are scaled by alpha / rank; the rank unless given."},
    {"--steps", "train.steps", ""},
    {"--lr", "train.lr", ""},
    {"--lr-scheduler", "train.lr_scheduler", ""},
    {"--optimizer", "train.optimizer", ""},
    {"--batch-size", "train.batch_size", ""},
    {"--gradient-accumulation", "train.gradient_accumulation", ""},
    {"--seed", "train.seed", ""},
    {"--deterministic", "train.deterministic", ""},
    {"--resolution", "datasets[].resolution", "Training size; 512,768 trains at both."},
    {"--caption-ext", "datasets[].caption_ext", ""},
    {"--trigger", "trigger_word", ""},
    {"--name", "name", ""},
    {"--out", "training_folder", "Folder of runs: everything is written to PATH/NAME."},
    {"--save-every", "save.save_every", ""},
    {"--save-dtype", "save.dtype", ""},
    {"--format", "save.format", ""},
    {"--sample-every", "sample.sample_every", ""},
    {"--sample-prompt", "sample.prompts", "Prompt of samples while training; may be repeated."},
};
constexpr ConfigFlag sample_flags_rows[] = {
    {"--prompt", "sample.prompts", "Prompt; may be repeated, one image each."},
    {"--neg", "sample.neg", ""},
    {"--steps", "sample.sample_steps", ""},
    {"--guidance", "sample.guidance_scale", ""},
    {"--seed", "sample.seed", ""},
    {"--width", "sample.width", ""},
    {"--height", "sample.height", ""},
    {"--sampler", "sample.sampler", ""},
    {"--scheduler", "sample.scheduler", ""},
    {"--skip-layer-guidance", "sample.skip_layer_guidance_scale",
     "Scale of skip-layer guidance, for models that have it."},
};
constexpr ConfigFlag lora_file_flags_rows[] = {
    {"--save-dtype", "save.dtype", "Type of the tensors that are written."},
    {"--format", "save.format", "Names in the file that is written (docs/lora-files.md)."},
};

constexpr const char* main_examples = R"(Examples:
  lora-host train --model model.safetensors --dataset photos --rank 32 --steps 1000
  lora-host --plugin ID --config train.yaml        (train is the command when none is named)
  lora-host sample --model model.safetensors --lora my.safetensors --prompt "a photo of my dog"
  lora-host COMMAND --help

Environment: LORA_LOG=debug|info|warning|error, LORA_VERBOSE=graph,plan,dispatch,memory,time)";
constexpr const char* train_examples = R"(Examples:
  lora-host train --config train.yaml
  lora-host train --config train.yaml --dry-run
  lora-host train --config train.yaml --resume
  lora-host train --model model.safetensors --dataset photos --rank 32 --alpha 32 --steps 1000 --lr 1e-4 --fp16
  lora-host train --model PLUGIN --checkpoint model.safetensors --dataset photos --trigger "my dog" --name dog

Flags override the configuration file. All keys: docs/config.md)";
constexpr const char* ctl_examples = R"(Commands, each done between two steps:
  set KEY=VALUE...   settings of train: lr, text_encoder_lr, loraplus_lr_ratio, module_lr_ratio, role_weight_decay,
                     lr_scheduler, lr_scheduler_params, optimizer, optimizer_params
  save               the state and the LoRA as they are
  sample PROMPT...   an image of each prompt
  status             where the run is
  pause, resume      stand still, go on
  stop               save and end, as Ctrl-C does

Examples:
  lora-host ctl output/dog set lr=5e-5
  lora-host ctl output/dog set optimizer=adamw8bit optimizer_params.weight_decay=0.1 lr=1e-4
  lora-host ctl output/dog sample "my dog on the moon"

What is set is in history.jsonl of the run's folder; a resumed run repeats it (docs/phases.md))";
constexpr const char* sample_examples = R"(Examples:
  lora-host sample --model model.safetensors --prompt "a red bicycle" --out bicycle.png
  lora-host sample --config train.yaml --lora dog.safetensors:0.8 --lora style.safetensors --prompt "my dog" --seed 7)";
constexpr const char* plugins_examples = R"(Examples:
  lora-host plugins
  lora-host plugins --verbose
  lora-host plugins --plugin-dir ./build/plugins)";
constexpr const char* inspect_examples = R"(Examples:
  lora-host inspect model.safetensors
  lora-host inspect my_lora.safetensors
  lora-host inspect my_lora.safetensors --json)";
constexpr const char* verify_examples = R"(Examples:
  lora-host verify my_lora.safetensors --model model.safetensors
  lora-host verify my_lora.safetensors --model model.safetensors --for comfyui,diffusers --json

Ends with 3 where a key is left over: of the programs in --for, or of those that the file's names are meant for.)";
constexpr const char* merge_examples = R"(Examples:
  lora-host merge --lora dog.safetensors:0.8 --lora style.safetensors:0.5 --model model.safetensors --into checkpoint --out dog_model.safetensors
  lora-host merge --lora dog.safetensors --lora style.safetensors:0.5 --model model.safetensors --into lora --out both.safetensors
  lora-host merge --lora a.safetensors --lora b.safetensors --model model.safetensors --into lora --rank 32 --out both.safetensors

Into a LoRA, the sum is exact, with the sum of the ranks, or the best one of the rank or share that is asked for. Into a
checkpoint, the weights are what sample --lora makes of them. A LoRA's text encoders need their files: --clip, --t5, ...
docs/lora-tools.md)";
constexpr const char* convert_examples = R"(Examples:
  lora-host convert dog.safetensors --format diffusers --model model.safetensors --out dog_diffusers.safetensors
  lora-host convert dog.safetensors --save-dtype bf16 --out dog_bf16.safetensors

Another format needs --model, whose layers the names are. docs/lora-tools.md)";
constexpr const char* extract_examples = R"(Examples:
  lora-host extract tuned.safetensors --model base.safetensors --rank 64 --out tuned_lora.safetensors
  lora-host extract tuned.safetensors --model base.safetensors --energy 0.95 --rank 256 --out tuned_lora.safetensors

--model is the checkpoint that the file was trained from. docs/lora-tools.md)";
constexpr const char* resize_examples = R"(Examples:
  lora-host resize dog.safetensors --rank 8 --out dog_8.safetensors
  lora-host resize dog.safetensors --energy 0.99 --model model.safetensors --out dog_small.safetensors

With --model it ends with the programs that load the file. docs/lora-tools.md)";
constexpr const char* make_examples = R"(Examples:
  lora-host make-checkpoint --like keys.json toy.safetensors --seed 1)";
constexpr const char* bench_examples = R"(Examples:
  lora-host bench --model model.safetensors --resolution 1024 --rank 16
  lora-host bench --plugin NAME --like keys.json --resolution 1024 --rank 16 --times)";

constexpr const char* plan_examples = R"(Examples:
  lora-host plan --config train.yaml
  lora-host plan --config train.yaml --budget 24,16,12,8
  lora-host plan --config train.yaml --card "rtx 4070"
  lora-host plan --plugin NAME --like keys.json --resolution 1024 --rank 16 --card "12 GB, 58 TFLOP/s, 504 GB/s" --link 12GB/s

Each row is the fastest way, by prediction, to stay within a budget (docs/memory.md). Nothing runs.)";

constexpr std::string_view plugin_dir = "--plugin-dir";

// Where the command stands, or should: after the --plugin-dir flags that may come first.
size_t place_of_command(const std::vector<std::string>& args) {
  size_t at = 0;
  while (at < args.size() && (args[at] == plugin_dir || args[at].starts_with("--plugin-dir=")))
    at += args[at] == plugin_dir ? 2 : 1;
  return at;
}

// The command line with the command spelled out: "lora-host --config x" is "lora-host train --config x".
std::vector<std::string> with_command(int argc, const char* const* argv) {
  std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const size_t at = place_of_command(args);
  if (at >= args.size()) {
    if (args.empty()) args.push_back("--help");
    return args;
  }
  if (const std::string& word = args[at]; !word.starts_with('-')) {
    if (std::ranges::find(commands, word) != std::end(commands)) return args;
    const std::string near = nearest_of(word, commands);
    fail(Code::config, "unknown command {}. {}", word,
         near.empty() ? fmt::format("Known: {}", fmt::join(commands, ", ")) : fmt::format("Did you mean {}?", near));
  } else if (word != "--help" && word != "-h" && word != "--version") {
    args.insert(args.begin() + static_cast<std::ptrdiff_t>(at), "train");
  }
  return args;
}

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
void add_plugin_flags(CLI::App* app, const std::vector<PluginKeys>& plugins, Arguments& raw) {
  const auto taken = [&](const std::string& flag) {
    return app->get_option_no_throw(flag) != nullptr || app->get_parent()->get_option_no_throw(flag) != nullptr;
  };
  const auto flags = plugin_flags(plugins, taken);
  for (const auto& [flag, key] : flags) app->add_option(flag, raw.given[key])->group("");
  app->footer(plugin_flags_help(plugins, flags) + app->get_footer());
}

void add_model(CLI::App* app, Arguments& raw) {
  app->add_option("--config", raw.config_file, "Configuration file (docs/config.md).")->type_name("FILE");
  app->add_option("--model", raw.model, "Checkpoint file or diffusers directory, or the id of a model plugin.")
      ->type_name("PATH|ID");
  app->add_option("--checkpoint", raw.checkpoint, "Checkpoint, where --model names a plugin.")->type_name("PATH");
  add_flags(app, model_flags(), raw);
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

void add_dataset(CLI::App* app, Arguments& raw) {
  app->add_option("--dataset", raw.datasets, "Folder of images with captions; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("DIR");
}

void define(CLI::App& app, const std::vector<PluginKeys>& plugins, Arguments& raw) {
  app.footer(main_examples);
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.add_flag("--version", raw.version, "Show version, ABI and backends.");
  app.add_option("--plugin-dir", raw.plugin_dirs, "Further folder of plugins; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("DIR");

  auto* train = app.add_subcommand("train", "Train a LoRA.")->footer(train_examples);
  add_model(train, raw);
  add_dataset(train, raw);
  train
      ->add_option("--dataset-config,--dataset_config", raw.dataset_config,
                   "Datasets as kohya's scripts have them (docs/from-kohya.md).")
      ->type_name("FILE.toml");
  add_flags(train, train_flags(), raw);
  train->add_option("--resume", raw.resume, "Go on from a checkpoint; without a path, from the latest of this run.")
      ->expected(0, 1)
      ->type_name("[PATH]");
  train
      ->add_option(
          "--resume-from", raw.resume_from,
          "With --resume: go on from the checkpoint of this step, or begin anew (none); later ones are renamed.")
      ->type_name("STEP|none");
  train->add_option("--replay", raw.replay, "Repeat what was set by hand in another run, at the same steps.")
      ->type_name("RUN_DIR");
  train->add_flag("--dry-run", raw.dry_run, "Check files, data and memory, print the plan and stop.");

  auto* ctl = app.add_subcommand("ctl", "Speak to a run that is training.")->footer(ctl_examples);
  ctl->add_option("run", raw.input, "Folder of the run.")->required()->type_name("RUN_DIR");
  ctl->add_option("command", raw.ctl_command, "What it shall do.")->required()->type_name("COMMAND");
  ctl->add_option("arguments", raw.ctl_arguments, "What with.")->type_name("ARGUMENT...");

  auto* sample = app.add_subcommand("sample", "Make images.")->footer(sample_examples);
  add_model(sample, raw);
  add_flags(sample, sample_flags(), raw);
  add_loras(sample, raw);
  sample->add_option("--image", raw.images, "Image to work from, for models that are given some; may be repeated.")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY=FILE");
  sample->add_option("--out", raw.output, "Image file, or folder for several images.")->type_name("PATH");

  auto* list = app.add_subcommand("plugins", "List the plugins that are found.")->footer(plugins_examples);
  list->add_flag("--verbose", raw.verbose, "Show what they take: files, settings, components, options.");

  auto* inspect = app.add_subcommand("inspect", "Show what a file holds.")->footer(inspect_examples);
  inspect->add_option("file", raw.input, "Checkpoint, LoRA or diffusers directory.")->required()->type_name("FILE");

  inspect->add_flag("--json", raw.json, "Everything that is known, as JSON.");

  auto* verify =
      app.add_subcommand("verify", "Check which programs load every key of a LoRA file.")->footer(verify_examples);
  verify->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_model(verify, raw);
  verify->add_option("--for", raw.programs, "Programs that have to load it, such as comfyui,kohya.")
      ->delimiter(',')
      ->type_name("PROGRAM");
  verify->add_flag("--json", raw.json, "Every key with its reason, as JSON.");

  auto* merge =
      app.add_subcommand("merge", "Merge LoRA files into a checkpoint, or into one LoRA.")->footer(merge_examples);
  add_loras(merge, raw);
  merge->add_option("--into", raw.into, "What is written.")
      ->required()
      ->check(CLI::IsMember({"checkpoint", "lora"}))
      ->type_name("checkpoint|lora");
  add_output(merge, raw, "File to write; for a model in several files a new folder.");
  add_rank(merge, raw);
  merge->add_flag("--skip-unmatched", raw.skip_unmatched, "Leave out modules that match no layer of the model.");

  auto* convert =
      app.add_subcommand("convert", "Write a LoRA file in another format or type.")->footer(convert_examples);
  convert->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_output(convert, raw, "File to write.");

  auto* extract = app.add_subcommand("extract", "Write what one checkpoint has and another has not as a LoRA.")
                      ->footer(extract_examples);
  extract->add_option("file", raw.input, "The tuned checkpoint: a file or diffusers directory.")
      ->required()
      ->type_name("PATH");
  add_output(extract, raw, "File to write.");
  add_rank(extract, raw);
  extract->add_flag("--biases", raw.biases, "Biases and norms too, as they differ; not every program loads them.");
  extract->add_flag("--exact", raw.exact, "All singular values of every layer, however long that takes.");

  auto* resize = app.add_subcommand("resize", "Write a LoRA file at another rank.")->footer(resize_examples);
  resize->add_option("file", raw.input, "LoRA file.")->required()->type_name("FILE");
  add_output(resize, raw, "File to write.");
  add_rank(resize, raw);
  for (CLI::App* tool : {merge, convert, extract, resize}) {
    // resize keeps the names of its file.
    add_flags(tool, tool == resize ? lora_file_flags().first(1) : lora_file_flags(), raw);
    add_model(tool, raw);
    const bool as_it_was = tool == convert || tool == resize;
    tool->get_option("--save-dtype")
        ->description(as_it_was ? "Type of the tensors that are written. [as in the file]"
                                : "Type of the tensors that are written. [fp32; of a checkpoint, as in its file]");
    if (tool == convert || tool == merge)
      tool->get_option("--format")->description("Names in the file (docs/lora-files.md). [as in the first file]");
  }

  auto* make = app.add_subcommand("make-checkpoint", "Write a checkpoint of generated weights.")->footer(make_examples);
  make->add_option("--like", raw.input, "Key list: {\"tensors\": {name: [dtype, shape]}}.")
      ->required()
      ->type_name("KEYLIST");
  make->add_option("--seed", raw.seed, "Seed of the weights, 0 unless given.")->type_name("VALUE");
  make->add_option("out", raw.output, "File to write.")->required()->type_name("OUT");

  auto* bench = app.add_subcommand("bench", "Time training steps without a dataset.")->footer(bench_examples);
  add_model(bench, raw);
  add_flags(bench, train_flags(), raw);
  bench->add_option("--like", raw.input, "Key list to make weights from on the device, instead of a model file.")
      ->type_name("KEYLIST");
  bench->add_option("--repeat", raw.repeats, "Steps to time [20].")->type_name("N");
  bench->add_option("--text-length", raw.text_length, "Text tokens. [as the encoders give, or the longest tokenizer's]")
      ->type_name("N");
  bench->add_flag("--recompute", raw.recompute, "Compute all activations of blocks twice.");
  bench->add_flag("--times", raw.times, "Show the time by op as well.");

  auto* plan = app.add_subcommand("plan", "Show what a run takes of memory and time under several budgets.")
                   ->footer(plan_examples);
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

  for (CLI::App* command : {train, sample, verify, merge, convert, extract, resize, bench, plan})
    add_plugin_flags(command, plugins, raw);
  for (CLI::App* command : app.get_subcommands({})) command->fallthrough();
}

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

constexpr const char* description = "lora-host trains LoRA adapters for diffusion models.";

// The known flag nearest to an unknown one, as " Did you mean --x?".
std::string suggestion(const std::string& word, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames()[0]);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest_of(word.substr(0, word.find('=')), views);
  return near.empty() ? "" : fmt::format(" Did you mean {}?", near);
}

}  // namespace

std::span<const ConfigFlag> model_flags() { return model_flags_rows; }
std::span<const ConfigFlag> train_flags() { return train_flags_rows; }
std::span<const ConfigFlag> sample_flags() { return sample_flags_rows; }
std::span<const ConfigFlag> lora_file_flags() { return lora_file_flags_rows; }

std::vector<CommandInfo> command_table(const std::vector<PluginKeys>& plugins) {
  Arguments raw;
  CLI::App app(description, "lora-host");
  define(app, plugins, raw);
  std::vector<CommandInfo> table{info_of(app)};
  for (const CLI::App* command : app.get_subcommands({})) table.push_back(info_of(*command));
  return table;
}

FirstLook first_look(int argc, const char* const* argv) {
  const std::vector<std::string> args = with_command(argc, argv);
  const auto values = [&](const std::string& flag) {
    std::vector<std::string> all;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].starts_with(flag + "=")) all.push_back(args[i].substr(flag.size() + 1));
      if (args[i] == flag && i + 1 < args.size()) all.push_back(args[++i]);
    }
    return all;
  };
  const auto value = [&](const std::string& flag) {
    const std::vector<std::string> all = values(flag);
    return all.empty() ? "" : all.back();
  };
  return {.command = args[std::min(place_of_command(args), args.size() - 1)],
          .config_file = value("--config"),
          .plugin = value("--plugin"),
          .model = value("--model"),
          .plugin_dirs = values(std::string(plugin_dir))};
}

Arguments parse_arguments(int argc, const char* const* argv, const std::vector<PluginKeys>& plugins) {
  Arguments raw;
  CLI::App app(description, "lora-host");
  define(app, plugins, raw);
  std::vector<std::string> args = with_command(argc, argv);
  std::ranges::reverse(args);  // as CLI11 wants them
  const auto command = [&]() -> CLI::App* {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? &app : chosen[0];
  };
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    raw.text = app.help();
    return raw;
  } catch (const CLI::ExtrasError&) {
    const std::string word = app.remaining(true).empty() ? "" : app.remaining(true)[0];
    fail(Code::config, "unknown argument {}.{} See lora-host {} --help", word, suggestion(word, *command()),
         command() == &app ? "" : command()->get_name());
  } catch (const CLI::ParseError& error) {
    fail(Code::config, "{}. See lora-host {} --help", error.what(), command() == &app ? "" : command()->get_name());
  }
  if (command() == &app)
    raw.text = app.help();
  else
    raw.command = command()->get_name();
  raw.resume_given = raw.command == "train" && command()->count("--resume") > 0;
  return raw;
}

}  // namespace lh
