// Arguments that need more than another name (musubi_keys.cpp).
#include "config/musubi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "config/musubi_keys.h"
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
// Between the experts of Wan 2.2 A14B.
constexpr double text_to_video_boundary = 0.875, image_to_video_boundary = 0.9;

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
  Training() : ScriptArguments(argument_names) {}

  Translated read(const Node& file) {
    collect(file);
    find_model();
    if (!supported_) return std::move(to_);  // most of what else it has is of that model
    for (const auto& [name, entry] : given_) read_key(*entry.first, *entry.second);
    settle_modules();
    settle_noise_levels();
    if (const bool guided = model_ != nullptr && model_->guidance_in_model; find("sample_prompts") != nullptr)
      to_.prompt = [guided, shown = shown_first_frames()](const std::string& line, yaml::Place place,
                                                          Translated& made) {
        return prompt(line, guided, shown, place, made);
      };
    return std::move(to_);
  }

 private:
  // ---- the model

  std::string text_of(const std::string& name, const std::string& otherwise = "") const {
    const Node* value = find(name);
    return value == nullptr || value->kind != Kind::scalar ? otherwise : value->text;
  }

  // By its network, or by what only its script has: networks.loha is of all of them.
  void find_model() {
    const std::string module = text_of("network_module"), version = text_of("model_version");
    if (const std::string_view other = model_without_plugin(module); !other.empty()) {
      supported_ = false;
      return reader_.problem(key_of("network_module"), "network_module",
                             fmt::format("no plugin trains {}, which {} is of", other, module));
    }
    std::string plugin = text_of("plugin");
    const auto told = [&](std::initializer_list<const char*> keys) {
      return std::ranges::any_of(keys, [&](const char* key) { return find(key) != nullptr; });
    };
    if (plugin.empty() && told({"byt5"})) plugin = "hunyuan_video";
    if (plugin.empty() && told({"t5", "task", "dit_high_noise", "fp8_t5"}) && !told({"text_encoder1"})) plugin = "wan";
    if (plugin.empty() && told({"fp8_vl", "edit", "edit_plus"})) plugin = "qwen_image";
    if (plugin.empty() && (version == "original" || version.starts_with("edit"))) plugin = "qwen_image";
    if (plugin.empty() && (version == "dev" || version.starts_with("klein") || told({"fp8_text_encoder"})))
      plugin = "flux2";
    if (plugin.empty() && told({"text_encoder1", "text_encoder2"})) plugin = "flux";
    if (plugin.empty() && told({"fp8_llm"})) plugin = "z_image";
    for (const Model& model : models())
      if (model.module == module || (model_ == nullptr && !plugin.empty() && model.plugin == plugin)) model_ = &model;
    if (model_ == nullptr) return;
    const Node& key = find("network_module") != nullptr ? key_of("network_module") : none_;
    put("plugin", key, std::string(model_->plugin));
    if (!model_->variant.empty()) put("model.variant", key, std::string(model_->variant));
  }

  bool shown_first_frames() const { return text_of("task") == "i2v-A14B"; }
  bool is(std::string_view plugin) const { return model_ != nullptr && model_->plugin == plugin; }

  void read_text_encoder(const Node& key, const Node& value) {
    if (model_ == nullptr || model_->text_encoder.empty()) {
      std::vector<std::string_view> ids;
      for (const Model& model : models()) ids.push_back(model.plugin);
      return reader_.problem(
          key, key.text,
          model_ == nullptr
              ? fmt::format("nothing in the file says which model's it is: add plugin = \"...\", one of {}",
                            fmt::join(ids, ", "))
              : fmt::format("{} has no such argument there: it has {}", model_->module,
                            is("wan") ? "t5" : "text_encoder1 and text_encoder2"));
    }
    const bool klein = is("flux2") && text_of("model_version").starts_with("klein");
    put(klein ? "model.qwen3_path" : model_->text_encoder, key, value);
  }

  void read_version(const Node& key, const Node& value) {
    const std::string version = lower(value.text);
    if (is("qwen_image") || model_ == nullptr) {
      if (one_of(version, {"edit", "edit-2509", "edit-2511"})) return put("model.variant", key, version);
      if (version == "original") return;
      return reader_.problem(key, key.text,
                             version == "layered" ? "Qwen-Image-Layered is not trained here"
                                                  : "must be original, edit, edit-2509 or edit-2511, found " + version);
    }
    if (!is("flux2")) return reader_.problem(key, key.text, "is of Qwen-Image and Flux.2: remove it");
    if (one_of(version, {"klein-4b", "klein-9b"})) return put("model.variant", key, "klein");
    if (one_of(version, {"klein-base-4b", "klein-base-9b"})) return put("model.variant", key, "klein-base");
    if (version != "dev")
      reader_.problem(key, key.text,
                      "must be dev, klein-4b, klein-9b, klein-base-4b or klein-base-9b, found " + version);
  }

  void read_task(const Node& key, const Node& value) {
    const std::string& task = value.text;
    const bool shown = task.starts_with("i2v") || task.starts_with("flf2v") || task.starts_with("ti2v");
    if (is("hunyuan_video")) {
      if (task != "t2v")
        reader_.problem(key, key.text,
                        shown ? "image-to-video, which sees its picture by SigLIP, is not trained here: t2v is"
                              : "must be t2v, found " + task);
      return;
    }
    if (one_of(task, {"t2v-14B", "t2v-1.3B", "t2i-14B", "t2v-A14B", "i2v-A14B"})) return;
    reader_.problem(key, key.text,
                    shown ? "of image-to-video i2v-A14B alone is trained here, which sees its picture by no CLIP"
                    : task.ends_with("-FC")
                        ? "Fun Control is not trained here: text-to-video is, such as t2v-14B"
                        : "must be t2v-14B, t2v-1.3B, t2i-14B, t2v-A14B or i2v-A14B, found " + task);
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
    if (name == "text_encoder") {
      read_text_encoder(key, value);
    } else if (name == "model_version") {
      read_version(key, value);
    } else if (name == "edit" || name == "edit_plus") {
      if (on(name) && find("model_version") == nullptr && (name == "edit_plus" || !on("edit_plus")))
        put("model.variant", key, name == "edit" ? "edit" : "edit-2509");
    } else if (name == "task") {
      read_task(key, value);
    } else if (name == "dit_high_noise") {
      if (!value.text.empty())
        reader_.problem(key, name,
                        "not supported: a run trains one expert of Wan 2.2, there both take turns. Make two runs: one "
                        "with dit and max_timestep = 875, and one with this file as dit and min_timestep = 875 (900 "
                        "of image-to-video)");
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
    if (model_ != nullptr && model_->module == module)
      put("network.type", key, "lora");
    else if (module == "networks.loha" || module == "networks.lokr")
      put("network.type", key, module.substr(std::string_view("networks.").size()));
    else {
      std::vector<std::string_view> known;
      for (const Model& model : models()) known.push_back(model.module);
      reader_.problem(
          key, key.text,
          fmt::format("{} is not known: {}, networks.loha and networks.lokr are", module, fmt::join(known, ", ")));
    }
  }

  // Patterns of modules are not among the options of an adapter.
  void read_network_args(const Node& key, const Node& value) {
    Node rest{.kind = Kind::list, .place = value.place};
    for (const Node& item : value.kind == Kind::list ? value.items : std::vector<Node>{value}) {
      const std::string option = item.text.substr(0, item.text.find('='));
      if (option == "verbose") {
        to_.ignored.push_back("network_args: verbose");
      } else if (option == "exclude_patterns") {
        excluded_ = {&item, item.text.substr(std::min(item.text.size(), option.size() + 1))};
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

  // Their network is not that of the plugin's own choice everywhere. Patterns of one's own take the place of theirs for
  // Flux, and are added to theirs for others.
  void settle_modules() {
    std::vector<std::string> left_out;
    if (model_ != nullptr && (excluded_.first == nullptr || !is("flux")))
      left_out.assign(model_->left_out.begin(), model_->left_out.end());
    if (const auto& [item, text] = excluded_; item != nullptr) {
      const auto patterns = python_list(text);
      for (const std::string& pattern : patterns.value_or(std::vector<std::string>{""})) {
        const std::vector<std::string> words = words_within(pattern);
        // q, k and v of Z-Image are one module here.
        if (words.empty() || is("z_image") || model_ == nullptr)
          reader_.problem(
              *item, "network_args",
              fmt::format("exclude_patterns: {} is not supported: only patterns like '.*word.*' and "
                          "'.*(one|two).*' are{}. Say it with network.ignore_if_contains of a YAML file",
                          patterns ? pattern : text, is("z_image") ? ", of models other than Z-Image" : ""));
        left_out.insert(left_out.end(), words.begin(), words.end());
      }
    }
    const auto put_list = [&](const char* path, const auto& texts) {
      if (texts.empty()) return;
      Node list{.kind = Kind::list, .place = none_.place};
      for (const auto& text : texts) list.items.push_back(scalar(none_, std::string(text)));
      put(path, none_, std::move(list));
    };
    put_list("network.ignore_if_contains", left_out);
    if (model_ != nullptr) put_list("network.target_modules", model_->targets);
    if (is("z_image")) note("network_module: q, k and v of an attention are one module here, there three");
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
    } else if (one_of(law, {"flux_shift", "flux2_shift", "qwen_shift", "krea2_shift", "ideogram4_shift"})) {
      if (model_ == nullptr || model_->by_size != law)
        reader_.problem(key, key.text,
                        fmt::format("{} is not supported for this model{}. Use shift with discrete_flow_shift", law,
                                    model_ == nullptr || model_->by_size.empty()
                                        ? ""
                                        : fmt::format(": of shifts by the image's size it has {}", model_->by_size)));
      put("train.timestep_type", key, "flux_shift");
    } else {
      reader_.problem(
          key, key.text,
          law.starts_with("qinglong")
              ? law + " draws from three laws in turn, which is not supported. Use logsnr or shift"
              : "must be sigma, uniform, sigmoid, shift, logsnr or a shift by the image's size, found " + law);
    }
    if (one_of(law, {"sigmoid", "shift", "flux_shift", "flux2_shift", "qwen_shift", "krea2_shift"})) {
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
    const std::string task = text_of("task");
    if (task != "t2v-A14B" && !shown_first_frames()) return;
    const double boundary = shown_first_frames() ? image_to_video_boundary : text_to_video_boundary;
    const double timestep = boundary * levels;
    if (low >= boundary || high <= boundary)
      put("model.variant", key_of("task"), low >= boundary ? "wan2.2-high-noise" : "wan2.2-low-noise");
    else if (shown_first_frames())
      note(
          fmt::format("task {0}: dit may be either expert: min_timestep = {1} or max_timestep = {1}, or --variant, "
                      "say which it is",
                      task, timestep));
    else
      note(
          fmt::format("task {0}: dit may be either expert. It is trained on all levels that the file says and sampled "
                      "as Wan 2.1; min_timestep = {1} or max_timestep = {1}, or --variant, say which it is",
                      task, timestep));
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

  const Model* model_ = nullptr;  // nullptr: not told
  bool supported_ = true;
  std::pair<const Node*, std::string> excluded_ = {};  // exclude_patterns of network_args
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

Translated training(const Node& file) { return Training().read(file); }

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
