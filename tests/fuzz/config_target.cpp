// Configurations and what else is written as YAML or as lines of JSON: taken means that it can be written and read
// back.
#include <fmt/core.h>

#include <set>

#include "config/config.h"
#include "config/load.h"
#include "config/run_settings.h"
#include "fuzz/targets.h"
#include "io/control.h"
#include "io/history.h"
#include "io/weight_files.h"
#include "support/source_files.h"

namespace lh::fuzz {
namespace {

void check_tree(const yaml::Node& node, int depth) {
  require(depth <= yaml::max_depth, "no tree is deeper than the limit");
  require(node.place.line >= 1 && node.place.column >= 1, "a node has a place");
  for (const yaml::Node& item : node.items) check_tree(item, depth + 1);
  std::set<std::string_view> keys;
  for (const auto& [key, value] : node.entries) {
    require(keys.insert(key.text).second, "a key is set once");
    check_tree(value, depth + 1);
  }
}

}  // namespace

bool config(Bytes input) {
  const std::string text(text_of(input));
  std::vector<yaml::Problem> problems;
  const yaml::Node tree = yaml::parse(text, problems);
  if (problems.empty()) check_tree(tree, 0);
  return taken([&] {
    const Config read = parse_config(text, "c.yaml", {.model = false, .datasets = false});
    require(problems.empty(), "what is no YAML is no configuration");
    const std::string printed = to_yaml(read);
    std::string again;
    if (!taken([&] { again = to_yaml(parse_config(printed, "c.yaml", {.model = false, .datasets = false})); }))
      throw Broken("the effective configuration is one: " + printed);
    if (again != printed) throw Broken("the effective configuration says the same again:\n" + printed + "\n" + again);
  });
}

std::vector<std::string> config_seeds() {
  std::vector<std::string> seeds = test::source_files("examples/configs", ".yaml");
  seeds.insert(seeds.end(),
               {"name: a\ntrain: {steps: 5, lr: 1e-4, optimizer_params: {betas: [0.9, 0.99]}}\n",
                "datasets:\n  - {folder_path: p, resolution: [64, 128], num_repeats: 2}\n  - folder_path: q\n",
                "network: {type: lora, linear: 4, network_kwargs: {a: 1}}\nmodel: {name_or_path: m, t5_path: t}\n",
                "train:\n  steps: 100\n  phases:\n    - {until: 10, lr: 1}\n    - {lr_scheduler: linear}\n",
                "config:\n  process:\n    - type: sd_trainer\n      train: {steps: 1}\n",
                "sample: {prompts: [\"a \\u00e9\", 'b''c'], seed: 1, walk_seed: true}\nsave: {dtype: bf16}\n",
                "a: [[[[]]]]\n", "a: |\n  b\n  c\n? d\n: e\n"});
  return seeds;
}

bool settings(Bytes input) {
  const std::string text(text_of(input));
  return taken([&] {
    const RunSettings read = RunSettings::of(text, "state");
    const std::string printed = RunSettings::of(read.text(), "state").text();  // once: an empty text means the default
    require(read.schedule_first() >= 0, "a schedule begins at a step");
    (void)read.schedule_steps();
    (void)read.summary();
    (void)read.phase_at(7);
    require(RunSettings::of(printed, "state").text() == printed, "settings say the same when they are read again");
  });
}

std::vector<std::string> settings_seeds() {
  TrainSection train;
  std::vector<std::string> seeds{RunSettings(train).text()};
  train = parse_config(
              "train:\n  steps: 9\n  phases:\n    - {until: 3, optimizer: lion, lr: 1}\n    - {lr_scheduler: linear}\n",
              "c", {.model = false, .datasets = false})
              .train;
  RunSettings settings(train, 4);
  settings.set(settings_of({"lr=5e-5", "optimizer_params.betas=[0.8, 0.9]", "lr_scheduler=cosine"}), 5, "");
  seeds.push_back(settings.text());
  return seeds;
}

bool history(Bytes input) {
  static MemoryFile memory;
  return taken([&] {
    const History history(memory.holding(input));
    int64_t before = 0;
    for (const Change& change : history.changes()) {
      require(change.step >= before, "steps of changes do not fall and are not negative");
      before = change.step;
      require(change.kind == file_change || change.kind == phase_change || change.kind == set_change,
              "a kind is known");
    }
  });
}

std::vector<std::string> history_seeds() {
  return {"{\"step\":0,\"file\":\"{steps: 5}\"}\n{\"step\":2,\"set\":\"{lr: 1}\"}\n{\"step\":3,\"phase\":\"1\"}\n",
          "{\"step\":1,\"phase\":\"1\"}\n\n", "{\"step\":1.5,\"set\":\"{}\"}\n", ""};
}

bool request(Bytes input) {
  const auto read = read_request(std::string(text_of(input)));
  if (!read) return false;
  return taken([&] {
    RunSettings settings(TrainSection{});
    settings.set(settings_of(read->arguments), 3, "ctl: ");
    (void)settings.text();
  });
}

std::vector<std::string> request_seeds() {
  return {R"({"command":"set","arguments":["lr=1e-4","optimizer=lion","optimizer_params.betas=[0.8, 0.9]"]})",
          R"({"command":"set","arguments":["train.lr_scheduler=cosine","module_lr_ratio={a: 1}"]})",
          R"({"command":"sample","arguments":["a \"cat\""]})", R"({"command":"status"})"};
}

bool shard_index(Bytes input) {
  static MemoryFolder folder("model.safetensors.index.json");
  folder.hold(input);
  return taken([&] {
    for (const auto& file : weight_set(folder.path()))
      require(file.parent_path() == folder.path() && std::filesystem::exists(file), "shards lie beside their index");
  });
}

std::vector<std::string> shard_index_seeds() {
  return {R"({"weight_map":{"a":"model.safetensors.index.json"}})",
          R"({"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors"}})",
          R"({"weight_map":{"a":"model.safetensors.index.json","b":"../x"}})", R"({"weight_map":{}})"};
}

}  // namespace lh::fuzz
