// The settings that need more than another name (kohya_keys.cpp).
#include "config/kohya.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "config/kohya_keys.h"
#include "config/nearest.h"
#include "config/scalar.h"
#include "config/script_arguments.h"

namespace lh::kohya {
namespace {

using yaml::Kind;
using yaml::Node;

std::string unknown(const std::string& name) {
  const std::string near = nearest_of(name, known_names());
  return fmt::format("unknown key{} docs/from-kohya.md lists those that are known",
                     near.empty() ? ";" : fmt::format(". Did you mean {}?", near));
}

constexpr Names names = {.ours = ours, .has_no_effect = has_no_effect, .refused = refused, .unknown = unknown};

bool is_of_datasets(std::string_view key) {
  const Refused* const row = refused(key);
  return key == "resolution" || ours(key).starts_with("datasets[].") || (row != nullptr && row->of_datasets);
}

class Datasets {
 public:
  explicit Datasets(const Node& arguments) : arguments_(arguments) {}

  Translated read(const Node& file) {
    const Node none{.kind = Kind::map};
    const Node *general = file.find("general"), *datasets = file.find("datasets");
    for (const auto& [key, value] : file.entries)
      if (key.text != "general" && key.text != "datasets") reader_.unknown(key);
    if (general != nullptr && general->kind != Kind::map) general = &none;
    list_ = {.kind = Kind::list, .place = datasets == nullptr ? yaml::Place{} : datasets->place};
    if (datasets == nullptr || datasets->kind != Kind::list)
      to_.problems.push_back({list_.place, "datasets: expected [[datasets]] with [[datasets.subsets]]"});
    else
      for (const Node& dataset : datasets->items) read_dataset(general == nullptr ? none : *general, dataset);
    set(to_.document, "datasets", scalar(list_, ""), std::move(list_));
    return std::move(to_);
  }

 private:
  using Layers = std::vector<const Node*>;  // what comes later counts

  void read_dataset(const Node& general, const Node& dataset) {
    const Node* subsets = dataset.find("subsets");
    if (subsets == nullptr || subsets->kind != Kind::list) {
      to_.problems.push_back({dataset.place, "datasets: expected [[datasets.subsets]] with image_dir"});
      return;
    }
    for (const Node& subset : subsets->items) read_subset({&arguments_, &general, &dataset, &subset});
  }

  void read_subset(const Layers& layers) {
    Node ours{.kind = Kind::map, .place = layers.back()->place};
    std::set<std::string> done;
    const auto splits = [](const Node* layer) { return layer->find("validation_split") != nullptr; };
    const bool split = std::ranges::any_of(layers, splits);
    if (split_.value_or(split) != split)
      to_.problems.push_back(
          {layers.back()->place, "validation_split: the share is that of all datasets here: say it in [general]"});
    split_ = split;
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
      for (const auto& [key, value] : (*layer)->entries) {
        if (key.text == "subsets" || !done.insert(key.text).second) continue;
        read_key(key, value, ours);
      }
    read_resolution(layers, ours);
    set_missing(ours, "buckets", "false");
    set_missing(ours, "caption_ext", "caption");
    set_missing(ours, "missing_captions", "empty");
    const Node* wildcard = ours.find("enable_wildcard");
    set_missing(ours, "caption_lines", wildcard != nullptr && yaml::flag_of(*wildcard) == true ? "any" : "first");
    if (const Node* metadata = ours.find("metadata_file"); metadata != nullptr && ours.find("folder_path") == nullptr)
      set(ours, "folder_path", *metadata, scalar(*metadata, std::filesystem::path(metadata->text).parent_path()));
    list_.items.push_back(std::move(ours));
  }

  // Width and height: of [512, 768], or "512,768".
  static std::optional<std::pair<int64_t, int64_t>> sides(const Node& value) {
    std::vector<Node> both = value.items;
    if (const size_t comma = value.text.find(','); value.kind == Kind::scalar && comma != value.text.npos) {
      std::string second = value.text.substr(comma + 1);
      second.erase(0, second.find_first_not_of(' '));
      both = {scalar(value, value.text.substr(0, comma)), scalar(value, second)};
    }
    if (both.size() != 2) return std::nullopt;
    const auto width = yaml::integer_of(both[0]), height = yaml::integer_of(both[1]);
    if (!width || !height || *width < 1 || *height < 1) return std::nullopt;
    return std::pair(*width, *height);
  }

  // An area there as well, of which buckets have many shapes: the side of its square.
  void read_resolution(const Layers& layers, Node& into) {
    const auto said = [](const Node* layer) { return layer->find("resolution") != nullptr; };
    const auto layer = std::find_if(layers.rbegin(), layers.rend(), said);
    if (layer == layers.rend()) return;
    const auto& [key, value] =
        *std::ranges::find_if((*layer)->entries, [](const auto& entry) { return entry.first.text == "resolution"; });
    const auto both = sides(value);
    if (!both) return set(into, "resolution", key, value);
    const Node* const buckets = into.find("buckets");
    if (both->first != both->second && (buckets == nullptr || yaml::flag_of(*buckets) != true))
      return reader_.problem(key, key.text, "both sides must be the same; other shapes come from enable_bucket = true");
    const double side = std::sqrt(static_cast<double>(both->first) * static_cast<double>(both->second));
    set(into, "resolution", key, scalar(value, fmt::format("{}", std::llround(side))));
  }

  void read_key(const Node& key, const Node& value, Node& into) {
    if (key.text == "resolution") return;  // read_resolution() looks at it
    if (key.text == "batch_size") return set(into, key.text, key, value);
    if (key.text == "validation_split" || key.text == "validation_seed") {
      std::string& known = of_all_[key.text];
      if (!known.empty() && known != value.text)
        return reader_.problem(key, key.text, fmt::format("all datasets have one here, another has {}", known));
      known = value.text;
      return set(to_.document, "train." + key.text, key, value);
    }
    if (key.text == "conditioning_data_dir") return set(into, "images.control", key, value);
    if (key.text == "flip_aug" && yaml::flag_of(value) == true && !flips_) {
      flips_ = true;
      to_.notes.push_back(
          "flip_aug: an epoch has each image as it is and mirrored, instead of one of the two by chance");
    }
    if (!reader_.read(key, value, into, "datasets[].")) reader_.unknown(key);
  }

  Translated to_;
  ScriptReader reader_{names, to_};
  const Node& arguments_;
  Node list_;
  std::map<std::string, std::string> of_all_;  // what datasets have there and the run has here
  std::optional<bool> split_;                  // do datasets keep images apart?
  bool flips_ = false;
};

// What they mean follows from several of them.
constexpr std::string_view of_several[] = {"cache_text_encoder_outputs",
                                           "network_train_unet_only",
                                           "timestep_sampling",
                                           "discrete_flow_shift",
                                           "system_prompt",
                                           "weighting_scheme",
                                           "logit_mean",
                                           "logit_std",
                                           "mode_scale",
                                           "sigmoid_scale",
                                           "train_data_dir",
                                           "reg_data_dir",
                                           "in_json"};

class Training : ScriptArguments {
 public:
  Training() : ScriptArguments(names) {}

  Translated read(const Node& file) {
    collect(file);
    for (const auto& [name, entry] : given_) read_key(*entry.first, *entry.second);
    settle();
    return std::move(to_);
  }

 private:
  void read_key(const Node& key, const Node& value) {
    const std::string& name = key.text;
    if (name == "mixed_precision") {
      put("train.dtype", key, value.text == "no" ? scalar(value, "fp32") : value);
    } else if (name == "learning_rate" && find("unet_lr") != nullptr) {
      if (find("text_encoder_lr") == nullptr) put("train.text_encoder_lr", key, value);
    } else if (name == "clip_skip" && value.text == "1") {
      return;  // the last layer, which every model has: files of the interface kohya_ss say so for all of them
    } else if (name == "full_bf16" || name == "full_fp16") {
      if (on(name))
        note(name +
             ": trained weights, their gradients and the optimizer's states are float32 here, which is nearer to what "
             "is wanted; the model is kept and multiplied as mixed_precision says");
    } else if (name == "apply_t5_attn_mask") {
      if (on(name))
        note(name +
             ": the pads of a text are masked where the model was made so, and nowhere else, as in the programs that "
             "LoRAs are used in");
    } else if (name == "masked_loss") {
      to_.masked_loss = on(name);
    } else if (std::ranges::find(of_several, name) != std::end(of_several)) {
      return;  // settle() looks at them
    } else if (is_of_datasets(name)) {
      to_.arguments.entries.emplace_back(key, value);
    } else if (name == "fp8_vl") {
      if (on(name)) put("model.text_encoder_dtype", key, "float8_e4m3");
    } else if (name == "network_module") {
      read_module(key, value);
    } else if (name == "min_timestep") {  // of 1000, where small ones have little noise
      if (const auto number = yaml::integer_of(value))
        put("train.max_denoising_steps", key, fmt::format("{}", 999 - *number));
    } else if (name == "max_timestep") {
      if (const auto number = yaml::integer_of(value))
        put("train.min_denoising_steps", key, fmt::format("{}", 1000 - *number));
    } else if (name == "model_prediction_type") {
      if (value.text != "raw")
        reader_.problem(key, name,
                        "must be raw: what the model says is compared with noise - image. Other programs train "
                        "it so, too; for the weights of sigma_scaled there is weighting_scheme = \"sigma_sqrt\"");
    } else if (!read_shared(key, value) && !reader_.read(key, value, to_.document, "")) {
      reader_.unknown(key);
    }
  }

  void read_module(const Node& key, const Node& value) {
    const std::string module = value.text;
    if (module == "networks.lora_fa")
      reader_.problem(key, key.text,
                      "networks.lora_fa leaves lora_down as it began, and here both matrices are trained: say "
                      "networks.lora");
    else if (module.starts_with("networks.lora"))
      put("network.type", key, "lora");
    else if (module == "networks.loha" || module == "networks.lokr")
      put("network.type", key, module.substr(std::string_view("networks.").size()));
    else if (module != "lycoris.kohya")
      reader_.problem(key, key.text,
                      fmt::format("{} is not known: networks.lora and its kin, networks.loha, networks.lokr "
                                  "and lycoris.kohya are",
                                  module));
  }

  // The folders that are named without a file of datasets: sub-folders "10_name", or images with one JSON file.
  void read_folders() {
    const Node *train = find("train_data_dir"), *reg = find("reg_data_dir"), *json = find("in_json");
    if (train == nullptr) return;
    Node subsets{.kind = Kind::list, .place = train->place};
    const auto add = [&](const Node& folder, bool is_reg) {
      Node subset{.kind = Kind::map, .place = folder.place};
      set(subset, "image_dir", folder, folder);
      if (is_reg) set(subset, "is_reg", folder, scalar(folder, "true"));
      if (json != nullptr) set(subset, "metadata_file", *json, *json);
      subsets.items.push_back(std::move(subset));
    };
    add(*train, false);
    if (reg != nullptr && json == nullptr) add(*reg, true);
    Node dataset{.kind = Kind::map, .place = train->place}, list{.kind = Kind::list, .place = train->place};
    set(dataset, "subsets", *train, std::move(subsets));
    list.items.push_back(std::move(dataset));
    Node file{.kind = Kind::map, .place = train->place};
    set(file, "datasets", *train, std::move(list));
    Translated made = Datasets(to_.arguments).read(file);
    for (auto& [key, value] : made.document.entries) {
      if (json == nullptr)
        for (Node& item : value.items) set(item, "class_folders", scalar(item, ""), scalar(item, "true"));
      to_.document.entries.emplace_back(std::move(key), std::move(value));
    }
    const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
    move(made.notes, to_.notes);
    for (const std::string& key : made.ignored) to_.ignore(key);
    move(made.problems, to_.problems);
  }

  // What follows from several keys.
  void settle() {
    read_folders();
    const Node none{.kind = Kind::scalar};
    const bool text = !on("network_train_unet_only") && !on("cache_text_encoder_outputs");
    put("train.train_text_encoder", none, text ? "true" : "false");
    settle_noise_levels();
    settle_system_prompt();
    settle_convolutions();
  }

  // LyCORIS adapts convolutions with the rank and alpha of the rest, unless it is given others.
  void settle_convolutions() {
    if (const Node* module = find("network_module"); module == nullptr || module->text != "lycoris.kohya") return;
    const Node& key = *given_.at("network_module").first;
    for (const auto& [ours, theirs, otherwise] :
         {std::tuple("conv", "network_dim", "4"), {"conv_alpha", "network_alpha", "1"}}) {
      const Node *network = to_.document.find("network"), *of_rest = find(theirs);
      const Node* said = network == nullptr ? nullptr : network->find(ours);
      if (said != nullptr && !yaml::asks_for_nothing(*said)) continue;
      put(std::string("network.") + ours, key, of_rest != nullptr ? *of_rest : scalar(key, otherwise));
    }
  }

  // There a text has none unless it is given; here it has the model's own.
  void settle_system_prompt() {
    const Node *said = find("system_prompt"), *encoder = find("gemma2");
    if (said != nullptr && !said->text.empty())
      put("model.system_prompt", *given_.at("system_prompt").first, *said);
    else if (encoder != nullptr)
      put("model.system_prompt", *given_.at("gemma2").first, "none");
  }

  // What scripts of their own have for models that are told by their text encoder.
  struct UsualLevels {
    const char *encoder, *law, *shift;
  };
  static constexpr UsualLevels usual_levels[] = {{"gemma2", "shift", "6"}, {"byt5", "sigma", "5"}};

  // How they are drawn. Files of theirs have the numbers of every law, of which one is used.
  void settle_noise_levels() {
    const auto* const usual =
        std::ranges::find_if(usual_levels, [&](const UsualLevels& u) { return find(u.encoder) != nullptr; });
    const bool told = usual != std::end(usual_levels);
    const Node *sampling = find("timestep_sampling"), *shift = find("discrete_flow_shift");
    const std::string law = sampling != nullptr ? sampling->text : told ? usual->law : "sigma";
    const Node* named = find("weighting_scheme");
    const std::string scheme = named == nullptr ? "" : named->text;
    const bool density = scheme == "logit_normal" || scheme == "mode";  // other schemes weigh the loss
    const auto keep = [&](const char* name, bool used) {
      const auto given = given_.find(name);
      if (given == given_.end()) return;
      if (used)
        reader_.read(*given->second.first, *given->second.second, to_.document, "");
      else
        to_.ignore(name);
    };
    keep("weighting_scheme", !density || law == "sigma");
    for (const char* name : {"logit_mean", "logit_std"}) keep(name, scheme == "logit_normal" && law == "sigma");
    // Of the place in a schedule that begins with noise.
    if (const Node* mean = find("logit_mean"); mean != nullptr && scheme == "logit_normal" && law == "sigma")
      if (const auto number = yaml::number_of(*mean))
        put("train.logit_mean", *given_.at("logit_mean").first, fmt::format("{}", -*number));
    keep("mode_scale", scheme == "mode" && law == "sigma");
    keep("sigmoid_scale", law == "sigmoid" || law == "shift" || law == "flux_shift");
    if (sampling == nullptr && !told) {
      if (shift != nullptr) to_.ignore("discrete_flow_shift");
      return;
    }
    const Node& key = *given_.at(sampling != nullptr ? "timestep_sampling" : usual->encoder).first;
    const bool by_size = law == "flux_shift" || law == "nextdit_shift";
    if (law == "uniform" || law == "sigmoid" || by_size)
      put("train.timestep_type", key, law == "uniform" ? "linear" : law == "nextdit_shift" ? "linear_flux_shift" : law);
    else if (law == "shift" || (law == "sigma" && !density))
      put("train.timestep_type", key, law == "shift" ? "shift" : "linear");
    else if (law != "sigma")
      reader_.problem(key, key.text,
                      "must be sigma, uniform, sigmoid, shift, flux_shift or nextdit_shift, found " + law);
    if (law == "shift" || law == "sigma")
      put("train.timestep_shift", shift != nullptr ? *given_.at("discrete_flow_shift").first : key,
          shift != nullptr ? *shift : scalar(key, told ? usual->shift : "3"));
    else if (!by_size)
      put("train.timestep_shift", key, "1");
  }
};

}  // namespace

Translated training(const Node& file) { return Training().read(file); }
Translated datasets(const Node& file, const Node& arguments) { return Datasets(arguments).read(file); }

Config defaults() {
  Config config;
  config.network.linear = 4;
  config.network.linear_alpha = 1;
  TrainSection& train = config.train;
  train.lr = 2e-6;
  train.steps = 1600;
  train.dtype = "fp32";
  train.gradient_checkpointing = "false";
  train.cfg_scale = 3.5;
  train.mask_normalization = "none";
  train.huber_schedule = "snr";
  config.save.dtype = "float32";
  config.notes.push_back(
      "what the files do not say is as kohya's scripts have it, not as this program has it (docs/from-kohya.md)");
  return config;
}

}  // namespace lh::kohya
