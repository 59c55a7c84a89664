// Arguments that need more than another name (musubi_keys.cpp).
#include "config/musubi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "config/musubi_keys.h"
#include "config/musubi_models.h"
#include "config/scalar.h"
#include "config/script_arguments.h"
#include "core/lower.h"

namespace lh::musubi {
namespace {

using kohya::scalar;
using kohya::Translated;
using yaml::Kind;
using yaml::Node;

constexpr kohya::Names argument_names = {
    .ours = ours, .has_no_effect = has_no_effect, .refused = refused, .unknown = unknown};

constexpr double levels = 1000;  // that min_timestep and max_timestep count

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// [r'.*a.*', '.*b.*'] of Python as its texts; nothing: it is another thing.
std::optional<std::vector<std::string>> python_list(const std::string& text) {
  std::vector<std::string> all;
  size_t at = text.find('[');
  if (at == text.npos || text.back() != ']') return std::nullopt;
  while ((at = text.find_first_of("'\"", at + 1)) != text.npos) {
    const size_t end = text.find(text[at], at + 1);
    if (end == text.npos) return std::nullopt;
    all.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return all;
}

// The words of ".*word.*" and ".*(one|two).*"; empty: the pattern is another one.
std::vector<std::string> words_within(std::string pattern) {
  if (pattern.size() < 5 || !pattern.starts_with(".*") || !pattern.ends_with(".*")) return {};
  pattern = pattern.substr(2, pattern.size() - 4);
  if (pattern.starts_with('(') && pattern.ends_with(')')) pattern = pattern.substr(1, pattern.size() - 2);
  std::vector<std::string> words{""};
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool dot = pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.';
    if (dot)
      words.back() += pattern[++i];
    else if (pattern[i] == '|')
      words.emplace_back();
    else if (std::isalnum(static_cast<unsigned char>(pattern[i])) != 0 || pattern[i] == '_')
      words.back() += pattern[i];
    else
      return {};
  }
  return std::ranges::find(words, "") == words.end() ? words : std::vector<std::string>{};
}

class Training : kohya::ScriptArguments {
 public:
  explicit Training(std::span<const PluginKeys> plugins) : ScriptArguments(argument_names), models_(plugins) {}

  Translated read(const Node& file) {
    collect(file);
    if (!find_model()) return std::move(to_);  // most of what else it has is of that model
    for (const auto& [name, entry] : given_) read_key(*entry.first, *entry.second);
    settle_modules();
    settle_noise_levels();
    if (find("sample_prompts") != nullptr)
      to_.prompt = [guided = has_model() && model().guidance_in_model, shown = begins_with_picture()](
                       const std::string& line, yaml::Place place, Translated& made) {
        return prompt(line, guided, shown, place, made);
      };
    return std::move(to_);
  }

 private:
  // ---- the model

  bool has_model() const { return of_ != nullptr; }
  const MusubiModel& model() const { return *of_->musubi; }

  std::string text_of(const std::string& name, const std::string& otherwise = "") const {
    const Node* value = find(name);
    return value == nullptr || value->kind != Kind::scalar ? otherwise : value->text;
  }

  // False: no plugin has it.
  bool find_model() {
    const std::string module = text_of("network_module");
    of_ = models_.of(given_);
    if (find("plugin") != nullptr) put("plugin", key_of("plugin"), text_of("plugin"));
    if (!has_model()) {
      if (!module.starts_with("networks.lora") || models_.all().empty() || find("plugin") != nullptr) return true;
      reader_.problem(key_of("network_module"), "network_module",
                      fmt::format("no plugin trains the model of {}; those that are here train those of {}", module,
                                  fmt::join(modules(), ", ")));
      return false;
    }
    const Node& key = find("network_module") != nullptr ? key_of("network_module") : none_;
    if (find("plugin") == nullptr) put("plugin", key, of_->plugin);
    put_settings(key, model().set);
    for (const auto& [argument, words] : model().words)
      if (const Node* value = find(argument); value != nullptr)
        if (const MusubiModel::Word* word = word_of(model(), argument, *value)) said_.emplace_back(argument, word);
    return true;
  }

  std::vector<std::string> modules() const {
    std::vector<std::string> all;
    for (const PluginKeys* plugin : models_.all()) all.push_back(plugin->musubi->network_module);
    return all;
  }
  static std::vector<std::string> plugins(const std::vector<const PluginKeys*>& of) {
    std::vector<std::string> all;
    for (const PluginKeys* plugin : of) all.push_back(plugin->plugin);
    return all;
  }

  void put_settings(const Node& key, const MusubiModel::Settings& settings) {
    for (const auto& [setting, text] : settings) put("model." + setting, key, text);
  }

  // The argument whose word says that `dit` is one of two experts.
  const std::pair<std::string, const MusubiModel::Word*>* parted() const {
    const auto found = std::ranges::find_if(said_, [](const auto& said) { return said.second->boundary > 0; });
    return found == said_.end() ? nullptr : &*found;
  }
  bool begins_with_picture() const {
    return std::ranges::any_of(said_, [](const auto& said) { return said.second->first_frame; });
  }

  // Of an argument that the scripts of some models have.
  void not_of_model(const Node& key) {
    if (!has_model())
      return reader_.problem(
          key, key.text,
          fmt::format("nothing in the file says which model's it is: add plugin = \"...\", one of {}",
                      fmt::join(plugins(models_.all()), ", ")));
    std::vector<std::string_view> files;
    for (const auto& [argument, path] : model().paths) files.push_back(argument);
    reader_.problem(key, key.text,
                    fmt::format("{} has no such argument there, {} {}: remove it. Its files are dit, vae{}{}",
                                model().network_module, fmt::join(plugins(models_.with(key.text)), ", "),
                                models_.with(key.text).size() == 1 ? "has" : "have", files.empty() ? "" : ", ",
                                fmt::join(files, ", ")));
  }

  // The key of `model:` for an argument that a word which is said has for a file. Without that word the same argument
  // may be without effect, which is why it is looked for first.
  const std::string* file_of_word(const std::string& argument) const {
    for (const auto& [said, word] : said_)
      if (const auto path = word->paths.find(argument); path != word->paths.end()) return &path->second;
    return nullptr;
  }

  void read_argument(const Node& key, const Node& value) {
    if (!has_model()) return not_of_model(key);
    if (const auto path = model().paths.find(key.text); path != model().paths.end())
      return put("model." + path->second, key, value);
    const auto words = model().words.find(key.text);
    if (words == model().words.end()) return not_of_model(key);
    if (const MusubiModel::Word* word = word_of(model(), key.text, value)) {
      if (!word->refused.empty()) return reader_.problem(key, key.text, word->refused);
      for (const auto& [setting, text] : word->set)
        if (const auto& [other, argument] = set_by_.try_emplace(setting, text, key.text).first->second; other != text)
          return reader_.problem(key, key.text,
                                 fmt::format("{} means {}: {}, but {} means {}: make them agree", value.text, setting,
                                             text, argument, other));
      return put_settings(key, word->set);
    }
    if (yaml::flag_of(value) == false) return;
    std::vector<std::string_view> known;
    for (const MusubiModel::Word& word : words->second)
      if (word.refused.empty()) known.push_back(word.word);
    reader_.problem(key, key.text, fmt::format("must be {}, found {}", fmt::join(known, ", "), yaml::describe(value)));
  }

  // ---- key by key

  // What follows from several of them.
  static bool of_several(std::string_view name) {
    return one_of(
        name, {"plugin", "timestep_sampling", "discrete_flow_shift", "sigmoid_scale", "weighting_scheme", "logit_mean",
               "logit_std", "mode_scale", "min_timestep", "max_timestep", "preserve_distribution_shape"});
  }

  void read_key(const Node& key, const Node& value) {
    const std::string& name = key.text;
    if (of_several(name)) return;
    if (const std::string* file = file_of_word(name)) {
      put("model." + *file, key, value);
    } else if (models_.have(name)) {
      read_argument(key, value);
    } else if (name == "dit_high_noise") {
      if (!value.text.empty()) refuse_second_expert(key);
    } else if (name == "mixed_precision") {
      if (value.text == "no")
        note("mixed_precision no: the model is run in bf16, as it is there");
      else
        put("train.dtype", key, value);
    } else if (one_of(name, {"fp8_t5", "fp8_llm", "fp8_vl", "fp8_text_encoder"})) {
      if (on(name)) put("model.text_encoder_dtype", key, "float8_e4m3");
    } else if (name == "network_module") {
      read_module(key, value);
    } else if (name == "network_alpha") {  // 0 is the rank there, which is what we have where nothing is said
      const Node* rank = find("network_dim");
      const bool zero = yaml::number_of(value) == 0.0;
      put("network.linear_alpha", key, !zero ? value : rank != nullptr ? *rank : scalar(value, "4"));
    } else if (name == "network_args") {
      read_network_args(key, value);
    } else if (name == "lr_scheduler" && lower(value.text) == "rex") {
      reader_.problem(key, name,
                      "rex is not supported: there it ends at a hundredth of learning_rate, here at 0. Use cosine");
    } else if (!read_shared(key, value) && !reader_.read(key, value, to_.document, "")) {
      reader_.unknown(key);
    }
  }

  void read_module(const Node& key, const Node& value) {
    const std::string& module = value.text;
    if (has_model() && model().network_module == module)
      put("network.type", key, "lora");
    else if (module == "networks.loha" || module == "networks.lokr")
      put("network.type", key, module.substr(std::string_view("networks.").size()));
    else if (has_model() && models_.of_network(module) != nullptr)
      reader_.problem(key, key.text,
                      fmt::format("{} is not that of {}: {} is", module, of_->plugin, model().network_module));
    else
      reader_.problem(
          key, key.text,
          fmt::format("{} is not known: {}, networks.loha and networks.lokr are", module, fmt::join(modules(), ", ")));
  }

  void refuse_second_expert(const Node& key) {
    const auto* const said = parted();
    const double at = said == nullptr ? 0 : said->second->boundary * levels;
    reader_.problem(
        key, key.text,
        "not supported: there one LoRA is trained with both experts in turns, here each has its own. Make two "
        "runs: one with dit and " +
            (said == nullptr ? "max_timestep, and one with this file as dit and min_timestep, at the level "
                               "where they part"
                             : fmt::format("max_timestep = {0}, and one with this file as dit and "
                                           "min_timestep = {0}",
                                           at)));
  }

  // Patterns of modules are not among the options of an adapter.
  void read_network_args(const Node& key, const Node& value) {
    Node rest{.kind = Kind::list, .place = value.place};
    for (const Node& item : value.kind == Kind::list ? value.items : std::vector<Node>{value}) {
      const std::string option = item.text.substr(0, item.text.find('='));
      if (option == "verbose") {
        to_.ignored.push_back("network_args: verbose");
      } else if (option == "exclude_patterns") {
        excluded_.emplace(item, item.text.substr(std::min(item.text.size(), option.size() + 1)));
      } else if (option == "include_patterns") {
        reader_.problem(item, "network_args",
                        "include_patterns is not supported: say which modules are trained with network.target_modules "
                        "of a YAML file");
      } else {
        rest.items.push_back(item);
      }
    }
    if (!rest.items.empty()) read_shared(key, rest);
  }

  // Their network is not that of the plugin's own choice everywhere.
  void settle_modules() {
    using enum MusubiModel::Patterns;
    std::vector<std::string> left_out;
    if (has_model() && (!excluded_ || model().exclude_patterns != instead)) left_out = model().left_out;
    if (excluded_) {
      const auto& [item, text] = *excluded_;
      const auto patterns = python_list(text);
      const bool other_modules = has_model() && model().exclude_patterns == refused;
      for (const std::string& pattern : patterns.value_or(std::vector<std::string>{""})) {
        const std::vector<std::string> words = words_within(pattern);
        if (words.empty() || !has_model() || other_modules)
          reader_.problem(
              item, "network_args",
              fmt::format("exclude_patterns: {} is not supported: only patterns like '.*word.*' and "
                          "'.*(one|two).*' are{}. Say it with network.ignore_if_contains of a YAML file",
                          patterns ? pattern : text, other_modules ? ", where modules have the same names here" : ""));
        left_out.insert(left_out.end(), words.begin(), words.end());
      }
    }
    const auto put_list = [&](const char* path, const std::vector<std::string>& texts) {
      if (texts.empty()) return;
      Node list{.kind = Kind::list, .place = none_.place};
      for (const std::string& text : texts) list.items.push_back(scalar(none_, text));
      put(path, none_, std::move(list));
    };
    put_list("network.ignore_if_contains", left_out);
    if (!has_model()) return;
    put_list("network.target_modules", model().targets);
    if (!model().note.empty()) note(model().note);
  }

  // ---- noise levels

  void ignore(std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (find(key) != nullptr) to_.ignored.emplace_back(key);
  }
  // A number of the file, or theirs where it says nothing; put as `factor` times it.
  void put_number(const char* path, const char* name, double otherwise, double factor = 1) {
    const Node* value = find(name);
    const Node& key = value != nullptr ? key_of(name) : none_;
    const auto number = value != nullptr ? yaml::number_of(*value) : std::optional(otherwise);
    if (value != nullptr && (!number || factor == 1)) return put(path, key, *value);
    put(path, key, fmt::format("{}", *number * factor));
  }

  void settle_noise_levels() {
    const std::string law = text_of("timestep_sampling", "sigma"), scheme = text_of("weighting_scheme", "none");
    const Node& key = find("timestep_sampling") != nullptr ? key_of("timestep_sampling") : none_;
    const bool sigma = law == "sigma", density = one_of(scheme, {"logit_normal", "mode"});
    put("train.weighting_scheme", find("weighting_scheme") != nullptr ? key_of("weighting_scheme") : none_,
        density ? "none" : scheme);
    std::set<std::string> used;
    if (sigma) {
      // Their scheduler is made with a shift, but its levels are not shifted.
      put("train.timestep_type", key, density ? scheme : "linear");
      put("train.timestep_shift", key, "1");
      if (scheme == "logit_normal") {  // of the place in a schedule that begins with noise
        put_number("train.logit_mean", "logit_mean", 0, -1);
        put_number("train.logit_std", "logit_std", 1);
        used = {"logit_mean", "logit_std"};
      } else if (scheme == "mode") {
        put_number("train.mode_scale", "mode_scale", 1.29);
        used = {"mode_scale"};
      }
    } else if (one_of(law, {"uniform", "sigmoid", "shift"})) {
      put("train.timestep_type", key, law == "uniform" ? "linear" : law);
      if (law == "shift") used.insert("discrete_flow_shift");
      if (law == "shift")
        put_number("train.timestep_shift", "discrete_flow_shift", 1);
      else
        put("train.timestep_shift", key, "1");
    } else if (law == "logsnr") {  // t = sigmoid(-x / 2) of a normal number x
      put("train.timestep_type", key, "logit_normal");
      put("train.timestep_shift", key, "1");
      put_number("train.logit_mean", "logit_mean", 0, -0.5);
      put_number("train.logit_std", "logit_std", 1, 0.5);
      used = {"logit_mean", "logit_std"};
    } else if (is_by_size(law)) {
      if (!has_model() || model().by_size != law)
        reader_.problem(key, key.text,
                        fmt::format("{} is not supported for this model{}. Use shift with discrete_flow_shift", law,
                                    !has_model() || model().by_size.empty()
                                        ? ""
                                        : fmt::format(": of shifts by the image's size it has {}", model().by_size)));
      put("train.timestep_type", key, "flux_shift");
    } else {
      reader_.problem(
          key, key.text,
          law.starts_with("qinglong")
              ? law + " draws from three laws in turn, which is not supported. Use logsnr or shift"
              : "must be sigma, uniform, sigmoid, shift, logsnr or a shift by the image's size, found " + law);
    }
    if (one_of(law, {"sigmoid", "shift"}) || (is_by_size(law) && law != "ideogram4_shift")) {
      put_number("train.sigmoid_scale", "sigmoid_scale", 1);
      used.insert("sigmoid_scale");
    }
    for (const char* name : {"discrete_flow_shift", "sigmoid_scale", "logit_mean", "logit_std", "mode_scale"})
      if (!used.contains(name)) ignore({name});
    settle_range(sigma);
  }

  // The levels that are trained. With `sigma` they are counted from pure noise.
  void settle_range(bool sigma) {
    double bounds[] = {0, levels};
    const char* const keys[] = {"min_timestep", "max_timestep"};
    for (size_t i = 0; i < 2; ++i)
      if (const Node* value = find(keys[i])) {
        const auto number = yaml::number_of(*value);
        if (!number || *number < 0 || *number > levels)
          return reader_.problem(*value, keys[i], "expected a number from 0 to 1000, found " + yaml::describe(*value));
        bounds[i] = *number;
      }
    const bool cut = on("preserve_distribution_shape");
    if (cut && sigma) ignore({"preserve_distribution_shape"});
    if (bounds[0] >= bounds[1])
      return reader_.problem(find(keys[0]) != nullptr ? key_of(keys[0]) : key_of(keys[1]), keys[0],
                             "must be below max_timestep");
    const double low = sigma ? 1 - bounds[1] / levels : bounds[0] / levels,
                 high = sigma ? 1 - bounds[0] / levels : bounds[1] / levels;
    if (low > 0 || high < 1) {
      const Node& key = key_of(find(keys[0]) != nullptr ? keys[0] : keys[1]);
      Node range{.kind = Kind::list, .place = key.place};
      range.items = {scalar(key, fmt::format("{:.6g}", low)), scalar(key, fmt::format("{:.6g}", high))};
      put("train.noise_range", key, std::move(range));
      put("train.noise_range_fit", key, cut && !sigma ? "cut" : "scale");
      if (sigma)
        note(
            fmt::format("min_timestep, max_timestep: with timestep_sampling sigma they count from pure noise, as "
                        "there: noise levels from {:.6g} to {:.6g} are trained",
                        low, high));
    }
    if (parted() == nullptr) return;
    const auto& [argument, word] = *parted();
    if (low >= word->boundary || high <= word->boundary)
      put_settings(key_of(argument), low >= word->boundary ? word->above : word->below);
    else
      note(
          fmt::format("{0} {1}: dit may be either expert. Unless min_timestep = {2} or max_timestep = {2}, or --{3}, "
                      "says which it is, it is taken for a model of all levels",
                      argument, word->word, word->boundary * levels, word->above.begin()->first));
  }

  // ---- samples

  // Flags as ours; a flag begins behind " --".
  static std::string prompt(const std::string& line, bool guidance_in_model, bool shown_first_frames, yaml::Place place,
                            Translated& made) {
    const auto say_once = [&](const std::string& text) {
      if (std::ranges::find(made.notes, text) == made.notes.end()) made.notes.push_back(text);
    };
    std::string text = line.substr(0, line.find(" --"));
    int controls = 0;
    for (size_t at = line.find(" --"); at != line.npos;) {
      const size_t next = line.find(" --", at + 1), space = line.find(' ', at + 1);
      const std::string name = lower(line.substr(at + 3, std::min(space, next) - at - 3));
      const std::string rest = space < next ? line.substr(space, next - space) : "";
      at = next;
      std::string ours = name;
      if (name == "fs" || name == (guidance_in_model ? "l" : "g")) {
        say_once(name == "fs" ? "sample_prompts: --fs: samples have the shift of the model's own schedule"
                              : fmt::format("sample_prompts: --{}: the model has no such guidance", name));
        continue;
      }
      if (name == "g") ours = "l";
      if (name == "ci") ours = ++controls == 1 ? "ctrl_img" : fmt::format("ctrl_img_{}", controls);
      if (name == "i" && shown_first_frames)
        ours = "ctrl_img";
      else if (one_of(name, {"i", "ei", "cn", "of"})) {
        made.problems.push_back({place, fmt::format("sample_prompts: --{}: not supported: text-to-video and images are "
                                                    "sampled here",
                                                    name)});
        continue;
      }
      text += " --" + ours + rest;
    }
    return text;
  }

  Models models_;
  const PluginKeys* of_ = nullptr;  // nullptr: not told
  std::vector<std::pair<std::string, const MusubiModel::Word*>> said_ = {};
  std::map<std::string, std::pair<std::string, std::string>> set_by_ = {};  // setting -> its value, the argument
  std::optional<std::pair<Node, std::string>> excluded_;                    // exclude_patterns of network_args
  Node none_{.kind = Kind::scalar};
};

// ---- which program's a file is

bool has_argument(const Node& file, std::string_view name) {
  return file.find(name) != nullptr || std::ranges::any_of(file.entries, [&](const auto& section) {
           return section.second.kind == Kind::map && section.second.find(name) != nullptr;
         });
}

}  // namespace

bool is_training(const Node& file) { return has_argument(file, "dit"); }

bool is_datasets(const Node& file) {
  const Node* datasets = file.find("datasets");
  return datasets != nullptr && std::ranges::any_of(datasets->items, [](const Node& dataset) {
           return std::ranges::any_of(std::initializer_list<const char*>{"image_directory", "video_directory",
                                                                         "image_jsonl_file", "video_jsonl_file"},
                                      [&](const char* key) { return dataset.find(key) != nullptr; });
         });
}

Translated training(const Node& file, std::span<const PluginKeys> plugins) { return Training(plugins).read(file); }

double fps_of(std::span<const PluginKeys> plugins, const std::string& plugin) {
  const auto found = std::ranges::find(plugins, plugin, &PluginKeys::plugin);
  return (found == plugins.end() ? MusubiModel{} : found->musubi.value_or(MusubiModel{})).fps;
}

Config defaults() {
  Config config;
  config.network.linear = 4;
  config.network.linear_alpha = 1;
  config.train.lr = 2e-6;
  config.train.steps = 1600;
  config.train.gradient_checkpointing = "false";
  config.save.dtype = "float32";
  config.save.max_step_saves_to_keep = 1'000'000;  // all
  config.sample.width = config.sample.height = 256;
  config.sample.sample_steps = 20;
  config.notes.push_back(
      "what the files do not say is as musubi-tuner has it, not as this program has it (docs/from-musubi.md)");
  return config;
}

}  // namespace lh::musubi
