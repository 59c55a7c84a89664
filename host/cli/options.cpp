// Command line arguments become Options: load the configuration file, lay the flags over it, see that nothing is
// missing.
#include "cli/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "cli/arguments.h"
#include "cli/part_names.h"
#include "cli/plugin_flags.h"
#include "config/load.h"
#include "config/run_settings.h"
#include "config/schedule_params.h"
#include "config/value.h"
#include "core/error.h"
#include "core/log.h"
#include "data/image_formats.h"
#include "data/video.h"
#include "lora_host/abi.h"
#include "lora_kernels.h"
#include "plugin/published.h"
#include "run/usual_rate.h"
#include "train/device_groups.h"
#include "world/world.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// --model is a path or a plugin id; --checkpoint is the path then.
void apply_model(const Arguments& raw, const Registry& registry, Config& config) {
  std::error_code error;
  const fs::path path = schema::expand_home(raw.model);
  if (!raw.checkpoint.empty()) config.model.name_or_path = schema::expand_home(raw.checkpoint);
  if (raw.model.empty()) return;
  if (path.extension() == ".so" && !raw.checkpoint.empty()) {
    config.plugin = path;
    return;
  }
  if (fs::exists(path, error)) {
    if (!raw.checkpoint.empty())
      fail(Code::config, "--model {} is a path and --checkpoint {} another: give one of them", raw.model,
           raw.checkpoint);
    config.model.name_or_path = path;
    return;
  }
  if (raw.model.find('/') != std::string::npos || path.has_extension())
    fail(Code::config, "--model: there is no {}{}", path.string(), repository_hint(path, published_models(registry)));
  if (config.model.name_or_path.empty())
    fail(Code::config, "--model {}: no such path. If it is the id of a plugin, name the weights with --checkpoint PATH",
         raw.model);
  config.plugin = raw.model;
}

void apply_datasets(const Arguments& raw, Config& config) {
  if (raw.datasets.empty()) return;
  const DatasetConfig settings = config.datasets.empty() ? DatasetConfig{} : config.datasets[0];
  config.datasets.clear();
  for (const std::string& folder : raw.datasets) {
    config.datasets.push_back(settings);
    config.datasets.back().folder_path = schema::expand_home(folder);
  }
}

// --lora FILE[:STRENGTH], or the folder that diffusers keeps one in.
LoraInput lora_of(const std::string& text) {
  LoraInput lora = lora_input("--lora", text);
  std::error_code none;
  if (!fs::is_directory(lora.path, none)) return lora;
  if (const fs::path inside = lora.path / "pytorch_lora_weights.safetensors"; fs::exists(inside, none)) {
    lora.path = inside;
    return lora;
  }
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(lora.path, none))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().filename().string());
  fail(Code::config, "--lora {}: is a folder, expected a file{}", text,
       files.empty() ? std::string(". There is no .safetensors file in it")
                     : fmt::format(". Give one of those in it: {}", fmt::join(files, ", ")));
}

// --image control=photo.png, of one key once, or once for each prompt; for data --image control=folder.
void apply_images(const Arguments& raw, ImagePaths& images) {
  if (!raw.images.empty()) images.clear();
  for (const std::string& text : raw.images) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || equals + 1 == text.size())
      fail(Code::config, "--image {}: expected the model's key and a {}", text,
           raw.command == "init" ? "folder, such as control=references" : "file, such as control=photo.png");
    images[text.substr(0, equals)].push_back({.text = text.substr(equals + 1), .source = "--image"});
  }
}

// A flag that is an integer; `fallback` where it was not given.
int64_t parse_integer(const char* flag, const std::string& text, int64_t fallback, int64_t least) {
  if (text.empty()) return fallback;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < least)
    fail(Code::config, "{}: expected an integer, at least {}, found {}", flag, least, text);
  return number;
}

// A flag that is a share; 0 where it was not given.
double parse_share(const char* flag, const std::string& text) {
  if (text.empty()) return 0;
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || !(number > 0 && number <= 1))
    fail(Code::config, "{}: expected a number, more than 0 and at most 1, found {}", flag, text);
  return number;
}

// After build_config: formats and types are checked as the configuration's are.
LoraToolOptions tool_of(const Arguments& raw, const Options& options) {
  const auto given = [&](const char* flag) {
    const auto found = raw.values.find(flag);
    return found != raw.values.end() && !found->second.empty();
  };
  LoraToolOptions tool{
      .into = raw.into, .force = raw.force, .skip_unmatched = raw.skip_unmatched, .biases = raw.biases};
  tool.choice = {.rank = parse_integer("--rank", raw.rank, 0, 1),
                 .energy = parse_share("--energy", raw.energy),
                 .exact = raw.exact};
  if (given("--format")) tool.format = options.config.save.format;
  if (given("--save-dtype")) tool.dtype = options.config.save.dtype;
  const bool some = tool.choice.rank > 0 || tool.choice.energy > 0;
  if ((options.command == "resize" || options.command == "extract") && !some)
    fail(Code::config, "{}: give --rank, --energy, or both", options.command);
  if (options.command == "merge" && options.loras.empty()) fail(Code::config, "merge: give at least one --lora FILE");
  if (tool.into == "checkpoint" && (some || !tool.format.empty()))
    fail(Code::config, "merge: --rank, --energy and --format are for --into lora; a checkpoint keeps its own names");
  if (options.command == "convert" && tool.format.empty() && tool.dtype.empty())
    fail(Code::config, "convert: give --format, --save-dtype, or both");
  if (options.command == "convert" && !tool.format.empty() && options.config.model.name_or_path.empty())
    fail(Code::config, "convert: --format needs --model PATH: the names are those of its layers");
  return tool;
}

// --replay RUN_DIR or its history.jsonl.
fs::path replay_of(const Arguments& raw) {
  if (raw.replay.empty()) return {};
  fs::path path = schema::expand_home(raw.replay);
  std::error_code error;
  if (fs::is_directory(path, error)) path /= "history.jsonl";
  if (!fs::exists(path, error)) fail(Code::config, "--replay: there is no {}", path.string());
  if (raw.resume_given)
    fail(Code::config, "--replay and --resume: a resumed run repeats its own history. Give one of them");
  return path;
}

// The words of a command line but for these flags and their values.
std::vector<std::string> without_flags(int argc, const char* const* argv, const std::vector<std::string_view>& flags) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool alone = std::ranges::find(flags, word) != flags.end();
    const bool with_value = std::ranges::find(flags, word.substr(0, word.find('='))) != flags.end();
    if (!with_value) words.emplace_back(word);
    i += alone;
  }
  return words;
}

// Commands that write a LoRA file, or one into a checkpoint.
bool is_lora_tool(const std::string& command) {
  return command == "merge" || command == "convert" || command == "extract" || command == "resize";
}

bool opens_model(const std::string& command) {
  return command == "train" || command == "init" || command == "check" || command == "sample" || command == "bench" ||
         command == "plan" || command == "verify" || is_lora_tool(command);
}

// These can do without: names in the file stay as they are, data is looked at for models in general.
bool model_is_optional(const std::string& command) {
  return command == "convert" || command == "resize" || command == "check";
}

// For files of ai-toolkit, whose rule of such optimizers goes by it.
std::function<std::optional<double>(const std::string&)> usual_rates_of(const Registry& registry) {
  return [&registry](const std::string& optimizer) { return usual_rate(registry, optimizer); };
}

// A rate that is far below what its optimizer wants is no mistake, and costs a run: it is said, and stays with the
// configuration.
void note_low_rates(const Arguments& raw, const fs::path& file, const Registry& registry, Config& config) {
  const auto flag = raw.values.find("--lr");
  const bool by_flag = flag != raw.values.end() && !flag->second.empty();
  for (const std::string& text :
       low_rates(registry, config.train, by_flag || file.empty() ? "" : place_in(file, {"train", "lr"}))) {
    log_info("{}", text);
    config.notes.push_back(text);
  }
}

// What is to be checked stands as a word: a folder of images, or a configuration.
void apply_checked(Arguments& raw) {
  if (raw.input.empty()) return;
  std::error_code error;
  const fs::path path = schema::expand_home(raw.input);
  if (!fs::exists(path, error))
    fail(Code::config, "check: there is no {}. Give a folder of images, or a configuration file", path.string());
  if (fs::is_directory(path, error)) {
    raw.datasets.insert(raw.datasets.begin(), raw.input);
    return;
  }
  if (!raw.config_file.empty())
    fail(Code::config, "check: {} and --config {} are two configurations. Give one of them", raw.input,
         raw.config_file);
  raw.config_file = raw.input;
}

// The plugin that the user names: by a flag, as --model ID, or in the file.
std::string plugin_asked_for(const FirstLook& look) {
  std::error_code error;
  if (!look.plugin.empty()) return look.plugin;
  if (!look.model.empty() && !is_plugin_path(look.model) && !fs::exists(look.model, error)) return look.model;
  return look.config_file.empty() ? "" : plugin_named_in(schema::expand_home(look.config_file));
}

void build_config(Arguments& raw, const std::vector<PluginKeys>& plugins, Options& options) {
  const bool needs_data = options.command == "train" || options.command == "check";
  const bool datasets = needs_data || options.command == "plan";
  const bool trains = datasets || options.command == "bench";
  if (options.command == "check") apply_checked(raw);
  if (raw.fp16 + raw.bf16 + raw.fp32 + !raw.values["--dtype"].empty() > 1)
    fail(Code::config, "--fp16, --bf16, --fp32 and --dtype exclude each other");
  if (raw.fp16) raw.values["--dtype"] = {"fp16"};
  if (raw.bf16) raw.values["--dtype"] = {"bf16"};
  if (raw.fp32) raw.values["--dtype"] = {"fp32"};

  Config& config = options.config;
  if (!raw.config_file.empty() || !raw.dataset_config.empty())
    config = load_config(
        schema::expand_home(raw.config_file), schema::expand_home(raw.dataset_config),
        {.model = !raw.config_file.empty() && raw.model.empty() && raw.checkpoint.empty() && options.command != "check",
         .datasets = needs_data && raw.datasets.empty(),
         .plugins = &plugins,
         .wrong_name = part_names_of(options.command, options.registry.get()),
         .usual_rate = trains ? usual_rates_of(*options.registry) : nullptr});
  apply_model(raw, *options.registry, config);
  if (datasets) apply_datasets(raw, config);
  const bool without_data = options.command == "bench" || options.command == "plan";
  const bool made_up = without_data && !raw.input.empty();
  if (without_data && config.datasets.empty()) config.datasets.resize(1);
  for (const auto& [key, value] : raw.given)
    if (!value.empty()) config.model.given[key] = {.text = value, .source = flag_of(key)};
  apply_images(raw, config.sample.images);
  apply_flags(model_flags(), raw.values, config);
  apply_flags(options.command == "sample"     ? sample_flags()
              : is_lora_tool(options.command) ? lora_file_flags()
                                              : train_flags(),
              raw.values, config);
  if (trains) fill_rates(*options.registry, config.train);

  if (made_up) {
    if (!config.model.name_or_path.empty())
      fail(Code::config, "--like makes the weights up: leave --model and --config out, or --like");
    return;
  }
  if (needs_data && config.datasets.empty())
    fail(Code::config, "no dataset: give --dataset DIR, or --config FILE with datasets");
  if (config.model.name_or_path.empty() && model_is_optional(options.command)) return;
  if (config.model.name_or_path.empty())
    fail(Code::config, "no model: give --model PATH, or --config FILE with model.name_or_path");
  if (config.train.max_train_epochs == 0) check_phases(config.train);  // else when the dataset is known
  check_schedules(config.train);
  if (options.command == "train") note_low_rates(raw, schema::expand_home(raw.config_file), *options.registry, config);
  if (options.command == "train" && config.train.max_train_epochs == 0)
    warn_of_long_schedules(config.train,
                           config.train.lr_scheduler_params.empty()
                               ? std::string()
                               : place_in(schema::expand_home(raw.config_file), {"train", "lr_scheduler_params"}));
  if (options.command == "sample" && config.sample.prompts.empty())
    fail(Code::config, "no prompt: give --prompt TEXT, or --config FILE with sample.prompts");
}

// What `init` is told; the rest of the configuration it makes.
void build_init(Arguments& raw, const std::vector<PluginKeys>& plugins, Options& options) {
  InitOptions& init = options.init;
  Config& config = options.config;
  if (options.output.empty()) options.output = "train.yaml";
  if (!raw.from.empty()) {
    if (!raw.model.empty() || !raw.datasets.empty() || !raw.purpose.empty())
      fail(Code::config, "init: --from converts a configuration that has a model and data: leave the others out");
    init.from = schema::expand_home(raw.from);
    config = load_config(init.from, schema::expand_home(raw.dataset_config),
                         {.plugins = &plugins, .usual_rate = usual_rates_of(*options.registry)});
    fill_rates(*options.registry, config.train);
    note_low_rates(raw, init.from, *options.registry, config);
    return;
  }
  if (!raw.dataset_config.empty()) fail(Code::config, "init: --dataset-config belongs to --from FILE.toml");
  for (const auto& [flag, value] : {std::pair{"--model PATH|ID", raw.model.empty()},
                                    {"--dataset DIR", raw.datasets.empty()},
                                    {"--for subject|style|concept", raw.purpose.empty()}})
    if (value) fail(Code::config, "init: give {}, or --from FILE", flag);
  if (raw.datasets.size() > 1) fail(Code::config, "init: give one --dataset; add others to the file that is written");
  init.models = schema::expand_home(raw.models.empty() ? "models" : raw.models);
  init.purpose = raw.purpose;
  init.card = raw.vram;
  std::error_code error;
  const bool id = !fs::exists(schema::expand_home(raw.model), error) && raw.model.find('/') == std::string::npos &&
                  !fs::path(raw.model).has_extension();
  if (id)
    init.model = raw.model;
  else
    apply_model(raw, *options.registry, config);
  apply_datasets(raw, config);
  apply_images(raw, config.datasets.front().images);
  for (const auto& [key, value] : raw.given)
    if (!value.empty()) config.model.given[key] = {.text = value, .source = flag_of(key)};
  apply_flags(init_flags(), raw.values, config);
  fill_rates(*options.registry, config.train);
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  const FirstLook look = first_look(argc, argv);
  std::vector<fs::path> plugin_dirs;
  for (const std::string& folder : look.plugin_dirs) plugin_dirs.push_back(schema::expand_home(folder));
  std::shared_ptr<const Registry> registry;
  std::vector<PluginKeys> plugins;
  if (opens_model(look.command)) {
    registry = std::make_shared<const Registry>(plugin_dirs, std::vector<std::string>{plugin_asked_for(look)});
    plugins = registry->model_keys();
  }
  Arguments raw = parse_arguments(argc, argv, plugins);
  if (raw.version) return {.command = "print", .text = version_text()};
  if (raw.command.empty() || !raw.text.empty()) return {.command = "print", .text = raw.text};

  Options options;
  options.command = raw.command;
  options.plugin_dirs = plugin_dirs;
  options.registry = registry;
  options.dry_run = raw.dry_run;
  options.allow_changes = raw.allow_changes;
  options.input = schema::expand_home(raw.input);
  options.output = schema::expand_home(raw.output);
  options.seed = parse_integer("--seed", raw.seed, options.seed, 0);
  options.tool.force = raw.force;
  options.port = parse_integer("--port", raw.port, options.port, 0);
  if (options.port > 65535) fail(Code::config, "--port: expected 0 to 65535, found {}", options.port);
  options.repeats = parse_integer("--repeat", raw.repeats, options.repeats, 2);
  options.text_length = parse_integer("--text-length", raw.text_length, options.text_length, 1);
  options.budgets = raw.budgets;
  options.card = raw.card;
  options.link = raw.link;
  options.times = raw.times;
  options.tune = raw.tune;
  options.json = raw.json;
  options.verbose = raw.verbose;
  options.programs = raw.programs;
  for (const std::string& lora : raw.loras) options.loras.push_back(lora_of(lora));
  options.request = {raw.ctl_command, raw.ctl_arguments};
  options.replay = replay_of(raw);
  if (raw.resume_given) options.resume = raw.resume.empty() ? "auto" : schema::expand_home(raw.resume).string();
  if (!raw.resume_from.empty()) {
    if (raw.resume_from != "none")
      options.resume_from = std::to_string(parse_integer("--resume-from", raw.resume_from, 0, 0));
    else
      options.resume_from = raw.resume_from;
    if (options.resume.empty()) options.resume = "auto";
  }
  options.processes = parse_integer("--processes", raw.processes, 0, 1);
  options.restarts = parse_integer("--restarts", raw.restarts, 0, 0);
  if (options.restarts > 0 && options.processes == 0)
    fail(Code::config, "--restarts: is for a run whose processes are started here: give --processes N too");
  if (options.processes > 0) options.arguments = without_flags(argc, argv, {"--processes", "--world", "--restarts"});
  if (raw.allow_changes && options.resume.empty())
    fail(Code::config, "--allow-changes: is for a run that goes on: give --resume too");
  if (options.command == "init")
    build_init(raw, plugins, options);
  else if (opens_model(options.command))
    build_config(raw, plugins, options);
  if (is_lora_tool(options.command)) options.tool = tool_of(raw, options);
  return options;
}

std::string version_text() {
  const std::string_view backends = lk_backend_available(LK_CUDA) != 0 ? "cuda, cpu" : "cpu (no lora-host-cuda)";
  const std::string missing = formats_without_library();
  return fmt::format(
      "lora-host {}\nplugin ABI {}.{}\nbackends: {}\nimages: {}{}\nvideos: {}\n{}\n{}\n", LORA_HOST_VERSION,
      LH_ABI_MAJOR, LH_ABI_MINOR, backends, formats_that_are_read(), missing.empty() ? "" : "; not " + missing,
      reads_videos() ? "are read" : "are not read: " + why_no_videos(), world_library_text(), device_group_text());
}

}  // namespace lh
