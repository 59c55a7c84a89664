#include "config/script_arguments.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/scalar.h"
#include "core/lower.h"

namespace lh::kohya {

using yaml::Kind;
using yaml::Node;

Node scalar(const Node& like, std::string text) {
  return {.kind = Kind::scalar, .place = like.place, .text = std::move(text)};
}

void set(Node& mapping, std::string_view path, const Node& key, Node value) {
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  const auto there = std::ranges::find_if(mapping.entries, [&](const auto& entry) { return entry.first.text == name; });
  Node named = scalar(key, name);
  if (dot == path.npos) {
    if (there != mapping.entries.end()) mapping.entries.erase(there);
    mapping.entries.emplace_back(std::move(named), std::move(value));
    return;
  }
  const auto at = static_cast<size_t>(there - mapping.entries.begin());
  if (at == mapping.entries.size())
    mapping.entries.emplace_back(std::move(named), Node{.kind = Kind::map, .place = key.place});
  Node& inner = mapping.entries[at].second;
  set(inner, path.substr(dot + 1), key, std::move(value));
}

void set_missing(Node& dataset, std::string_view path, const std::string& text) {
  if (dataset.find(path) == nullptr) set(dataset, path, scalar(dataset, ""), scalar(dataset, text));
}

namespace {

// {"weight_decay=0.01", "betas=0.9,0.99", "decouple=True"} as (name, value).
std::vector<std::pair<std::string, Node>> arguments(const Node& list, std::vector<yaml::Problem>& problems) {
  std::vector<std::pair<std::string, Node>> all;
  if (list.kind == Kind::scalar && list.text.empty()) return all;
  for (const Node& item : list.kind == Kind::list ? list.items : std::vector<Node>{list}) {
    const size_t equals = item.text.find('=');
    if (item.kind != Kind::scalar || equals == item.text.npos) {
      problems.push_back({item.place, "expected \"name=value\", found " + yaml::describe(item)});
      continue;
    }
    std::string text = item.text.substr(equals + 1);
    std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
    Node value = scalar(item, text == "True" ? "true" : text == "False" ? "false" : text);
    if (text.find(',') != text.npos) {
      value = {.kind = Kind::list, .place = item.place};
      for (size_t at = 0; at < text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        if (comma > at) value.items.push_back(scalar(item, text.substr(at, comma - at)));
        at = comma + 1;
      }
    }
    all.emplace_back(item.text.substr(0, equals), std::move(value));
  }
  return all;
}

// Interfaces write all arguments that a network has, most of which ask for nothing: those that no adapter here has.
bool says_nothing(const std::string& option, const Node& value) {
  constexpr std::string_view switches[] = {"use_scalar", "train_norm", "bypass_mode", "split_qkv", "train_t5xxl"},
                             parts[] = {"train_blocks", "train_double_block_indices", "train_single_block_indices"};
  if (std::ranges::find(switches, option) != std::end(switches)) return yaml::asks_for_nothing(value);
  if (std::ranges::find(parts, option) != std::end(parts)) return value.text == "all";
  return option == "preset" && value.text == "full";
}

// The optimizer whose states the driver moves between device and host memory, page by page, without them.
std::optional<std::string> paged(const std::string& optimizer) {
  std::string name = lower(optimizer);
  if (!name.starts_with("paged")) return std::nullopt;
  name.erase(0, std::string_view("paged").size());
  return name == "adamw32bit" ? "adamw" : name;
}

}  // namespace

void ScriptReader::problem(const Node& at, std::string_view key, const std::string& text) {
  to_.problems.push_back({at.place, fmt::format("{}: {}", key, text)});
}

bool ScriptReader::read(const Node& key, const Node& value, Node& into, std::string_view section) {
  if (names_.has_no_effect(key.text)) return to_.ignore(key.text), true;
  if (const Refused* const row = names_.refused(key.text)) {
    const bool harmless = !row->harmless.empty() && value.kind == Kind::scalar && value.text == row->harmless;
    if (!harmless && !yaml::asks_for_nothing(value)) problem(key, key.text, fmt::format("not supported: {}", row->fix));
    return true;
  }
  const std::string_view path = names_.ours(key.text);
  if (path.empty() || path.starts_with("datasets[].") != !section.empty()) return false;
  set(into, path.substr(section.size()), key, value);
  return true;
}

void ScriptArguments::collect(const Node& file) {
  const auto add = [this](const Node& key, const Node& value) {
    const auto [before, first] = given_.try_emplace(key.text, &key, &value);
    if (first) return;
    const Node& known = *before->second.second;
    if (value.kind != Kind::scalar || known.kind != Kind::scalar || known.text != value.text)
      reader_.problem(key, key.text,
                      fmt::format("set twice, first in line {}: sections are only for order, keep one of them",
                                  before->second.first->place.line));
  };
  for (const auto& [key, value] : file.entries) {
    if (value.kind == Kind::map)
      for (const auto& [inner, of_inner] : value.entries) add(inner, of_inner);
    else
      add(key, value);
  }
}

const Node* ScriptArguments::find(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : found->second.second;
}

bool ScriptArguments::on(const std::string& name) const {
  const Node* value = find(name);
  return value != nullptr && yaml::flag_of(*value) == true;
}

void ScriptArguments::put(std::string_view path, const Node& key, Node value) {
  set(to_.document, path, key, std::move(value));
}

void ScriptArguments::put(std::string_view path, const Node& key, const std::string& text) {
  put(path, key, scalar(key, text));
}

bool ScriptArguments::schedule_is(std::string_view name) const {
  const Node* value = find("lr_scheduler");
  return value != nullptr && value->text == name;
}

bool ScriptArguments::read_shared(const Node& key, const Node& value) {
  const std::string& name = key.text;
  if (name == "fp8_base" || name == "fp8_scaled") {
    if (on(name)) {
      put("model.dtype", key, "float8_e4m3");
      note(name +
           ": weights of the layers that are adapted are kept in float8_e4m3 with a factor for "
           "each row, which is nearer to the model than rounding without factors");
    }
  } else if (name == "blocks_to_swap") {
    if (yaml::asks_for_nothing(value)) return true;
    put("memory.stream", key, value);
    note(
        fmt::format("blocks_to_swap: the weights of {} blocks are streamed from host memory, evenly spread over the "
                    "step, or of more where memory would not do (memory.stream)",
                    value.text));
  } else if (name == "base_weights") {
    read_base_weights(key, value);
  } else if (name == "base_weights_multiplier" && find("base_weights") != nullptr) {
    return true;
  } else if (name == "network_args") {
    auto all = arguments(value, to_.problems);
    const auto given = [&](const char* name) {
      return std::ranges::find(all, name, [](const auto& a) { return a.first; });
    };
    if (const auto dora = given("dora_wd");
        dora != all.end() && !yaml::asks_for_nothing(dora->second) && given("wd_on_output") == all.end())
      to_.problems.push_back({dora->second.place,
                              "network_args: dora_wd: say wd_on_output as well: where it is not said LyCORIS has True, "
                              "and had False before version 3"});
    for (auto& [option, argument] : all) read_network_argument(key, option, std::move(argument));
  } else if (name == "optimizer_type") {
    read_optimizer(key, value);
  } else if (name == "optimizer_args") {
    for (auto& [option, given] : arguments(value, to_.problems))
      put("train.optimizer_params." + option, key, std::move(given));
  } else if (name == "dataset_config") {
    to_.dataset_config = value.text;
  } else if (name == "save_last_n_steps") {
    const Node* every = find("save_every_n_steps");
    const auto last = yaml::integer_of(value), step = every == nullptr ? std::nullopt : yaml::integer_of(*every);
    if (last && step && *step > 0)
      put("save.max_step_saves_to_keep", key, fmt::format("{}", std::max<int64_t>(1, *last / *step + 1)));
  } else if (name == "save_last_n_epochs") {  // counts saves, where that of steps counts steps
    if (find("save_every_n_epochs") != nullptr) put("save.max_step_saves_to_keep", key, value);
  } else {
    return read_schedule(key, value);
  }
  return true;
}

bool ScriptArguments::read_schedule(const Node& key, const Node& value) {
  const std::string& name = key.text;
  if (name == "lr_warmup_steps") {
    const auto number = yaml::number_of(value);
    if (number && *number != 0)
      put(fmt::format("train.lr_scheduler_params.warmup_{}", *number < 1 ? "ratio" : "steps"), key, value);
  } else if (name == "lr_scheduler_num_cycles") {
    if (schedule_is("cosine_with_restarts")) put("train.lr_scheduler_params.num_cycles", key, value);
  } else if (name == "lr_scheduler_power") {
    if (schedule_is("polynomial")) put("train.lr_scheduler_params.power", key, value);
  } else if (name == "lr_scheduler_timescale") {
    if (schedule_is("inverse_sqrt")) put("train.lr_scheduler_params.timescale", key, value);
  } else if (name == "lr_scheduler_args") {
    for (auto& [option, given] : arguments(value, to_.problems))
      put("train.lr_scheduler_params." + option, key, std::move(given));
  } else {
    return false;
  }
  return true;
}

// "bitsandbytes.optim.PagedAdamW8bit": the module does not matter, the class is what is asked for.
void ScriptArguments::read_optimizer(const Node& key, const Node& value) {
  if (value.kind != Kind::scalar) return put("train.optimizer", key, value);
  const std::string name = value.text.substr(value.text.rfind('.') + 1);
  const std::optional<std::string> without = paged(name);
  put("train.optimizer", key, scalar(value, without.value_or(name)));
  if (without)
    note(
        fmt::format("optimizer_type {}: the states of {} go to host memory where memory is short "
                    "(memory.optimizer_states)",
                    value.text, *without));
}

// LoRA files that are added to the model before it is trained, each at the strength in its place of another list, or 1.
void ScriptArguments::read_base_weights(const Node& key, const Node& value) {
  if (yaml::asks_for_nothing(value)) return;
  const auto each = [](const Node& node) { return node.kind == Kind::list ? node.items : std::vector<Node>{node}; };
  const Node* const factors = find("base_weights_multiplier");
  const std::vector<Node> strengths = factors == nullptr ? std::vector<Node>{} : each(*factors);
  Node files{.kind = Kind::list, .place = value.place};
  for (const Node& file : each(value)) {
    const size_t i = files.items.size();
    if (i < strengths.size() && !yaml::number_of(strengths[i]))
      return reader_.problem(strengths[i], "base_weights_multiplier",
                             "expected a number for each of base_weights, found " + yaml::describe(strengths[i]));
    files.items.push_back(
        scalar(file, fmt::format("{}:{}", file.text, i < strengths.size() ? strengths[i].text : "1")));
  }
  put("model.lora_path", key, std::move(files));
}

void ScriptArguments::read_network_argument(const Node& key, const std::string& option, Node value) {
  static const std::map<std::string, const char*> keys = {{"algo", "network.type"},
                                                          {"conv_dim", "network.conv"},
                                                          {"conv_alpha", "network.conv_alpha"},
                                                          {"dropout", "network.dropout"},
                                                          {"rank_dropout", "network.rank_dropout"},
                                                          {"module_dropout", "network.module_dropout"},
                                                          {"loraplus_lr_ratio", "train.loraplus_lr_ratio"},
                                                          {"loraplus_unet_lr_ratio", "train.loraplus_lr_ratio"},
                                                          // as LyCORIS has them
                                                          {"dora_wd", "network.network_kwargs.weight_decompose"},
                                                          {"wd_on_output", "network.network_kwargs.wd_on_out"},
                                                          {"use_cp", "network.network_kwargs.use_tucker"}};
  if (says_nothing(option, value)) return;
  const auto known = keys.find(option);
  put(known == keys.end() ? "network.network_kwargs." + option : std::string(known->second), key, std::move(value));
}

}  // namespace lh::kohya
