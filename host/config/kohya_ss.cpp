// What of the interface's fields needs more than another name. A field that is empty, off or 0 is none there: the
// scripts then have what they have without it.
#include "config/kohya_ss.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "config/kohya.h"
#include "config/kohya_ss_network.h"
#include "config/nearest.h"
#include "config/scalar.h"
#include "config/script_arguments.h"
#include "core/lower.h"

namespace lh::kohya_ss {
namespace {

namespace fs = std::filesystem;
using kohya::scalar;
using kohya::set;
using yaml::Kind;
using yaml::Node;

// Fields that are looked at together.
constexpr std::string_view of_several[] = {"optimizer",
                                           "optimizer_args",
                                           "lr_scheduler_args",
                                           "max_resolution",
                                           "epoch",
                                           "max_train_steps",
                                           "lr_warmup",
                                           "lr_warmup_steps",
                                           "lr_scheduler_num_cycles",
                                           "text_encoder_lr",
                                           "t5xxl_lr",
                                           "unet_lr",
                                           "noise_offset_type",
                                           "noise_offset",
                                           "noise_offset_random_strength",
                                           "adaptive_noise_scale",
                                           "multires_noise_iterations",
                                           "multires_noise_discount",
                                           "sample_prompts",
                                           "additional_parameters",
                                           "lora_network_weights",
                                           "use_8bit_adam",
                                           "num_processes",
                                           "multi_gpu"};

// Of the interface itself, and of the program by which it starts the scripts.
constexpr std::string_view of_interface[] = {"model_list",
                                             "training_preset",
                                             "headless",
                                             "print_only",
                                             "num_cpu_threads_per_process",
                                             "num_machines",
                                             "gpu_ids",
                                             "main_process_port",
                                             "dynamo_mode",
                                             "dynamo_use_fullgraph",
                                             "dynamo_use_dynamic",
                                             "extra_accelerate_launch_args",
                                             "stop_text_encoder_training_pct",
                                             "save_as_bool",
                                             "use_wandb",
                                             "no_token_padding"};

template <size_t count>
bool one_of(std::string_view name, const std::string_view (&names)[count]) {
  return std::ranges::find(names, name) != std::end(names);
}

// Numbers may be texts there ("0.0001"), and whole ones have a point (1.0).
Node plain(const Node& value) {
  if (value.kind != Kind::scalar) return value;
  Node made = scalar(value, value.text);
  if (!yaml::number_of(made)) return value;
  if (made.text.find_first_of("eE") == made.text.npos && made.text.find('.') != made.text.npos) {
    std::string whole = made.text.substr(0, made.text.find('.'));
    if (made.text.find_first_not_of('0', whole.size() + 1) == made.text.npos) made.text = whole;
  }
  return made;
}

// Words with spaces between, as the interface cuts them: quotes go.
Node words(const Node& value) {
  Node list{.kind = Kind::list, .place = value.place};
  std::string text = value.text;
  std::erase(text, '"');
  std::istringstream in(text);
  for (std::string word; in >> word;) list.items.push_back(scalar(value, word));
  return list;
}

class Preset : Fields {
 public:
  Preset(const Node& file, std::span<const PluginKeys> plugins, kohya::Translated& to) : Fields(file), to_(to) {
    for (const PluginKeys& plugin : plugins)
      if (plugin.kohya_ss) kinds_.push_back(&*plugin.kohya_ss);
  }

  Node arguments() {
    for (const auto& [key, value] : file().entries) read_field(key, value);
    // What is a model's own comes in the place of what is for all.
    for (const auto& [name, entry] : of_kind_) put(name, *entry.first, plain(*entry.second));
    read_network(kinds_, [this](const char* name, const Node& key, Node value) { put(name, key, std::move(value)); });
    read_learning_rates();
    read_noise();
    read_steps();
    read_texts();
    return std::move(arguments_);
  }

 private:
  void put(std::string_view name, const Node& key, Node value) { set(arguments_, name, key, std::move(value)); }
  void put(std::string_view name, const Node& key, std::string text) { put(name, key, scalar(key, std::move(text))); }
  // As it is, under another name.
  void pass(const char* field, const char* argument) {
    if (const Node* value = given(field)) put(argument, key_of(field), plain(*value));
  }

  bool is_on(const KohyaSsModel& kind) const { return flag(kind.on); }

  // The longest of the prefixes of kinds of models that the name begins with.
  std::pair<const KohyaSsModel*, size_t> kind_of(const std::string& name) const {
    std::pair<const KohyaSsModel*, size_t> found{nullptr, 0};
    for (const KohyaSsModel* kind : kinds_)
      for (const std::string& prefix : kind->prefixes)
        if (name.starts_with(prefix) && prefix.size() > found.second) found = {kind, prefix.size()};
    return found;
  }

  void read_field(const Node& key, const Node& value) {
    const std::string& name = key.text;
    const bool nothing = given(name) == nullptr;
    if (std::ranges::any_of(kinds_, [&](const KohyaSsModel* kind) { return kind->on == name; })) return;
    if (name.ends_with("_checkbox")) {
      if (!nothing)
        to_.problems.push_back({key.place, fmt::format("{}: a kind of model that no plugin here has", name)});
      return;
    }
    if (const auto [kind, length] = kind_of(name); kind != nullptr) {
      if (is_on(*kind) && !nothing) of_kind_[name.substr(length)] = {&key, &value};
      return;
    }
    const auto lists = [&](const std::vector<std::string>& names) {
      return std::ranges::find(names, name) != names.end();
    };
    const auto has = [&](const KohyaSsModel* kind) { return lists(kind->fields); };
    const bool of_kinds = std::ranges::any_of(kinds_, has);
    if (of_kinds && std::ranges::none_of(kinds_, [&](const auto* kind) { return has(kind) && is_on(*kind); })) return;
    if (nothing || one_of(name, of_several) || lists(network_fields_) ||
        std::ranges::any_of(kinds_, [&](const KohyaSsModel* kind) { return lists(kind->network_args); }))
      return;
    if (one_of(name, of_interface)) return to_.ignore(name);
    if (const std::string meant = misspelt(name); !meant.empty())
      return to_.problems.push_back({key.place, fmt::format("{}: unknown field. Did you mean {}?", name, meant)});
    put(name, key, plain(value));
  }

  // The field of the interface alone that a name comes nearest to; those of the scripts are looked at later.
  std::string misspelt(const std::string& name) const {
    std::vector<std::string_view> names = kohya::known_names();
    if (std::ranges::find(names, name) != names.end()) return "";
    const auto scripts = static_cast<std::ptrdiff_t>(names.size());
    names.insert(names.end(), std::begin(of_several), std::end(of_several));
    names.insert(names.end(), std::begin(of_interface), std::end(of_interface));
    for (const KohyaSsModel* kind : kinds_) {
      names.push_back(kind->on);
      names.insert(names.end(), kind->fields.begin(), kind->fields.end());
      names.insert(names.end(), kind->network_args.begin(), kind->network_args.end());
    }
    names.insert(names.end(), network_fields_.begin(), network_fields_.end());
    const std::string near = nearest_of(name, names);
    return std::find(names.begin() + scripts, names.end(), near) == names.end() ? "" : near;
  }

  // A rate of 0 leaves what it is for untrained; a learning rate alone is for all.
  void read_learning_rates() {
    const double text = number("text_encoder_lr"), t5 = number("t5xxl_lr"), denoiser = number("unet_lr");
    pass("unet_lr", "unet_lr");
    if (text > 0 && t5 > 0 && t5 != text) {
      const Node& key = key_of("text_encoder_lr");
      put("text_encoder_lr", key,
          Node{.kind = Kind::list,
               .place = key.place,
               .items = {plain(*given("text_encoder_lr")), plain(*given("t5xxl_lr"))}});
    } else {
      pass("text_encoder_lr", "text_encoder_lr");
    }
    const bool fixed_text =
        std::ranges::any_of(kinds_, [this](const auto* kind) { return is_on(*kind) && !kind->trains_text; });
    if (fixed_text) return put("network_train_unet_only", key_of("LoRA_type"), "true");
    if (text == 0 && denoiser != 0) put("network_train_unet_only", key_of("unet_lr"), "true");
    if (text != 0 && denoiser == 0) put("network_train_text_encoder_only", key_of("text_encoder_lr"), "true");
    if (text == 0 && t5 > 0)
      to_.problems.push_back({key_of("t5xxl_lr").place, "t5xxl_lr: needs a text_encoder_lr above 0 beside it"});
  }

  // One of two kinds of noise: the numbers of the other one stay as they were last.
  void read_noise() {
    const Node* type = given("noise_offset_type");
    if (type == nullptr || type->text == "Original") {
      for (const char* name : {"noise_offset", "noise_offset_random_strength", "adaptive_noise_scale"})
        pass(name, name);
    } else if (type->text == "Multires") {
      for (const char* name : {"multires_noise_iterations", "multires_noise_discount"}) pass(name, name);
    } else {
      to_.problems.push_back({type->place, "noise_offset_type: must be Original or Multires, found " + type->text});
    }
  }

  // Images of the folders "10_dog", each as often as the name says.
  int64_t images(const fs::path& folder) const {
    int64_t all = 0;
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename().string();
      int64_t repeats = 0, count = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), repeats);
      if (error != std::errc() || end == name.data() + name.size() || *end != '_') continue;
      for (const fs::directory_entry& file : fs::directory_iterator(entry.path(), none)) {
        const std::string ending = lower(file.path().extension().string());
        count += ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
      }
      all += repeats * count;
    }
    return all;
  }

  // Where steps are not said they are as many as the epochs have, whatever the buckets are.
  void read_steps() {
    pass("max_train_steps", "max_train_steps");
    if (given("max_train_steps") == nullptr && given("dataset_config") == nullptr &&
        given("max_train_epochs") == nullptr)
      count_steps();
    if (number("lr_warmup_steps") >= 1)
      pass("lr_warmup_steps", "lr_warmup_steps");
    else if (const double percent = number("lr_warmup"), steps = number("max_train_steps"); percent != 0) {
      const bool counted = given("dataset_config") != nullptr && steps > 0;
      put("lr_warmup_steps", key_of("lr_warmup"),
          counted ? fmt::format("{:.0f}", std::nearbyint(percent * steps / 100)) : fmt::format("{}", percent / 100));
    }
    pass("lr_scheduler_num_cycles", "lr_scheduler_num_cycles");
  }

  void count_steps() {
    const auto least = [this](const char* name) { return std::max(1.0, number(name)); };
    const Node *folder = given("train_data_dir"), *epoch = given("epoch");
    const Node& key = epoch != nullptr ? key_of("epoch") : key_of("LoRA_type");
    const int64_t count = folder == nullptr ? 0 : images(folder->text);
    if (count == 0) {  // data that flags name, or that is refused later
      put("max_train_epochs", key, fmt::format("{}", least("epoch")));
      return;
    }
    const double steps =
        std::ceil(static_cast<double>(count) / least("train_batch_size") / least("gradient_accumulation_steps") *
                  least("epoch") * (given("reg_data_dir") == nullptr ? 1 : 2));
    put("max_train_steps", key, fmt::format("{}", steps));
    to_.notes.push_back(fmt::format("max_train_steps: {}, as the interface counts {} images of {} epochs", steps, count,
                                    least("epoch")));
  }

  void read_texts() {
    if (given("optimizer") != nullptr)
      pass("optimizer", "optimizer_type");
    else if (flag("use_8bit_adam"))
      put("optimizer_type", key_of("use_8bit_adam"), "AdamW8bit");
    pass("lora_network_weights", "network_weights");
    pass("max_resolution", "resolution");
    for (const char* name : {"optimizer_args", "lr_scheduler_args"})
      if (const Node* value = given(name)) put(name, key_of(name), words(*value));
    if (const Node* prompts = given("sample_prompts")) {
      Node list{.kind = Kind::list, .place = prompts->place};
      std::istringstream lines(prompts->text);
      for (std::string line; std::getline(lines, line);) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (line.empty() || line[0] == '#') continue;
        list.items.push_back({.kind = Kind::scalar, .place = prompts->place, .text = line, .quoted = true});
      }
      put("sample_prompts", key_of("sample_prompts"), std::move(list));
    }
    if (flag("multi_gpu") || number("num_processes") > 1)
      to_.notes.push_back(
          fmt::format("num_processes: start the run with --processes {} for several GPUs (docs/scale.md)",
                      std::max(2.0, number("num_processes"))));
    if (const Node* more = given("additional_parameters"))
      read_command_line(key_of("additional_parameters"), words(*more).items);
  }

  // "--name value", "--name=value", "--name one two", or "--name", which is on. What is said here counts.
  void read_command_line(const Node& key, const std::vector<Node>& line) {
    for (size_t i = 0; i < line.size();) {
      const std::string& word = line[i++].text;
      if (!word.starts_with("--")) {
        to_.problems.push_back({key.place, "additional_parameters: expected --name, found " + word});
        return;
      }
      const size_t equals = word.find('=');
      std::vector<Node> values;
      if (equals != word.npos) values.push_back(scalar(key, word.substr(equals + 1)));
      for (; i < line.size() && !line[i].text.starts_with("--"); ++i) values.push_back(line[i]);
      const std::string name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
      if (values.size() < 2)
        put(name, key, values.empty() ? scalar(key, "true") : values.front());
      else
        put(name, key, Node{.kind = Kind::list, .place = key.place, .items = std::move(values)});
    }
  }

  std::vector<const KohyaSsModel*> kinds_;
  const std::vector<std::string> network_fields_ = network_fields();
  std::map<std::string, std::pair<const Node*, const Node*>> of_kind_;
  Node arguments_{.kind = Kind::map};
  kohya::Translated& to_;
};

}  // namespace

bool is_preset(const Node& file) { return file.find("LoRA_type") != nullptr; }

kohya::Translated training(const Node& file, std::span<const PluginKeys> plugins) {
  kohya::Translated fields;
  const Node arguments = Preset(file, plugins, fields).arguments();
  kohya::Translated made = kohya::training(arguments);
  made.notes.insert(made.notes.end(), fields.notes.begin(), fields.notes.end());
  made.problems.insert(made.problems.end(), fields.problems.begin(), fields.problems.end());
  for (const std::string& key : fields.ignored) made.ignore(key);
  return made;
}

}  // namespace lh::kohya_ss
