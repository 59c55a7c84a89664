// lora-host init: writes a configuration to begin with, or turns one of another program into one of ours.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "cli/commands.h"
#include "cli/memory_choice.h"
#include "cli/model_files.h"
#include "cli/output_file.h"
#include "cli/starting_point.h"
#include "config/dtype.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/utf8.h"
#include "data/further_images.h"
#include "encode/try_model.h"
#include "io/file.h"
#include "plugin/model.h"
#include "run/card.h"
#include "train/prepare.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// What a name may have that is a folder's and part of files' names.
std::string run_name(const fs::path& dataset) {
  std::string name = (dataset / "").lexically_normal().parent_path().filename().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '_');
  return name.empty() || name == "_" || name == "__" ? Config{}.name : "my_" + name;
}

// The card that is asked for, or that is here; nothing for the processor.
std::optional<Card> card_for(const Options& options, lk_products products = LK_PRODUCTS_WIDE) {
  const InitOptions& init = options.init;
  if (!init.card.empty()) {
    Card card = card_of(init.card, products, "--vram");
    if (!card.known) card.name = "a card with " + size_text(card.memory);
    return card;
  }
  if (options.config.device == "cpu") return std::nullopt;
  if (lk_backend_available(LK_CUDA) == 0)
    fail(
        Code::config,
        "init: this lora-host has no CUDA backend (lora-host-cuda), so it cannot ask the card. Say what memory it has: "
        "--vram 24, or which it is: --vram \"rtx 4070\"");
  lk_device_info info{};
  try {
    info = Device(options.config.device, false).info();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}. For a card that is not here say what memory it has: --vram 24, or which "
                                          "it is: --vram \"rtx 4070\"",
                                          error.what()));
  }
  const std::string memory = fmt::format("{:.1f} GB", static_cast<double>(info.memory_total) / 0x1p30);
  Card card = card_of(is_card(info.name) ? info.name : memory, products);
  if (card.known) card.memory = info.memory_total;
  card.bf16 = !slow_type(info, DType::bf16);
  return card;
}

void fill_in_memory(const Options& options, const DataLook& look, Config& config, KeyComments& comments) {
  const std::vector<int64_t> sides = resolutions_for(look);
  int64_t largest = sides.back();
  if (const std::optional<Card> card = card_for(options)) {
    if (!card->bf16) {
      config.train.dtype = "fp16";
      comments["train.dtype"] = "the card has no matrix instructions for bf16";
    }
    Options planned = options;
    planned.config = config;
    planned.input.clear();
    const auto with = [&](lk_products products) { return *card_for(options, products); };
    const ChosenMemory chosen = choose_memory(planned, with, sides);
    config.model.dtype = chosen.dtype;
    config.model.products = chosen.products;
    if (!chosen.why_products.empty()) comments["model.products"] = chosen.why_products;
    largest = chosen.resolution;
    comments["model.dtype"] = fmt::format("predicted for {}: {} and {:.2f} s a step at {} x {}; {}", card->name,
                                          size_text(chosen.memory), chosen.seconds, largest, largest, chosen.others);
  } else {
    config.train.dtype = "fp32";
    comments["train.dtype"] = "a CPU computes in it anyway";
  }
  DatasetConfig& dataset = config.datasets.at(0);
  dataset.resolution.clear();
  for (const int64_t side : sides)
    if (side <= largest) dataset.resolution.push_back(side);
  comments["datasets[].resolution"] = fmt::format("the {0}s have about {1} x {1} pixels", look.noun(), look.side);
  config.sample.width = config.sample.height = largest;
  comments["device"] = config.device == "cpu" ? "cuda for a GPU" : "cpu for a run without one";
}

// What --dry-run would say, on the card that is planned for.
void check(const Options& options, const Config& made) {
  Config config = made;
  if (const std::optional<Card> card = card_for(options)) {
    config.device = "card";
    config.memory.budget = size_text(usable_memory(*card));
  }
  const Prepared prepared(*options.registry, config);
}

void publish(const Options& options, const std::string& text) {
  if (invalid_utf8(text))
    fail(Code::config,
         "init: a path or text that belongs into {} is not valid UTF-8, which a configuration has to be: rename the "
         "file or folder",
         options.output.string());
  publish_text(options.output, text);
  fmt::print("{}\n", options.output.string());
}

// A file of another program, or of ours: in our keys, without those that say nothing.
int convert(const Options& options) {
  const Config& config = options.config;
  std::string text =
      fmt::format("# Made of {} by lora-host init. All keys: docs/config.md\n", options.init.from.string());
  text += to_yaml(config, KeyComments{});
  publish(options, text);
  fmt::print("check it: lora-host train --config {} --dry-run\n", options.output.string());
  return 0;
}

}  // namespace

int run_init(const Options& options) {
  refuse_replacing(options);
  if (!options.init.from.empty()) return convert(options);
  Config config = options.config;
  KeyComments comments;
  const DataLook look = look_at_data(config.datasets.at(0));
  if (config.name == Config{}.name) config.name = run_name(config.datasets.at(0).folder_path);
  comments["name"] = "of the files that are written";
  comments["training_folder"] = "they go to training_folder/name";
  begin_with(*purpose_of(options.init.purpose), look, config, comments);
  complete_model(*options.registry,
                 {options.init.model.empty() ? config.plugin : options.registry->model_id(options.init.model),
                  options.init.models},
                 config, comments);
  comments["plugin"] = "of the model";
  const std::set<std::string> images = keys_of_images(config);
  try_model(*options.registry, config.model, config.plugin, compute_dtype(config.train.dtype), images);
  const Model model(*options.registry, config.model, config.plugin, images);
  sample_from_first(model.recipe(), config, comments);
  if (model.recipe().objective != Objective::flow) {
    config.train.min_snr_gamma = 5;
    comments["train.min_snr_gamma"] = "weighs noise levels by what can be learnt at them";
  }
  fill_in_memory(options, look, config, comments);
  check(options, config);
  std::string text = fmt::format("# A {} LoRA of {} {}. Made by lora-host init; all keys: docs/config.md\n",
                                 options.init.purpose, model.recipe().family, model.recipe().variant);
  text += to_yaml(config, comments);
  publish(options, text);
  fmt::print("look at it, then: lora-host train --config {} --dry-run\n", options.output.string());
  return 0;
}

}  // namespace lh
