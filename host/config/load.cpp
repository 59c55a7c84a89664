// From YAML text to a Config: one walk over the tree that looks every key up in the schema and collects all problems.
#include "config/load.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "config/ai_toolkit.h"
#include "config/arch.h"
#include "config/kohya_keys.h"
#include "config/scalar.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/log.h"

namespace lh {
namespace {

// What people try whose other trainer has it elsewhere, too far from ours to be a slip of the pen.
std::string_view in_other_words(std::string_view path) {
  constexpr struct {
    std::string_view theirs, ours;
  } words[] = {{"train.lr_warmup_steps", "train.lr_scheduler_params.warmup_steps"},
               {"train.warmup_steps", "train.lr_scheduler_params.warmup_steps"},
               {"train.weight_decay", "train.optimizer_params.weight_decay"},
               {"train.epochs", "train.max_train_epochs"},
               {"network.dim", "network.linear"}};
  const auto* const word = std::ranges::find(words, path, [](const auto& w) { return w.theirs; });
  return word == std::end(words) ? "" : word->ours;
}

using yaml::Kind;
using yaml::Node;
using yaml::Place;

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

template <typename Table>
auto lookup(Table table, std::string_view path) {
  const auto row = std::ranges::find(table, path, &Table::element_type::path);
  return row == table.end() ? nullptr : &*row;
}

// Does the value of an unsupported key switch it off? harmless: the one that does; empty: what asks for nothing.
bool is_harmless(const Node& node, std::string_view harmless) {
  if (harmless.empty() || node.kind != Kind::scalar) return yaml::asks_for_nothing(node);
  return node.text == harmless || (harmless == "true" && yaml::flag_of(node).value_or(false)) ||
         (harmless == "1" && node.text == "1.0");
}

class Reader {
 public:
  Reader(std::string file, ConfigNeeds needs) : file_(std::move(file)), needs_(needs) {}

  Config read(const std::string& text) {
    if (one_of(std::filesystem::path(file_).extension().string(), {".sh", ".bat", ".cmd", ".ps1"}))
      fail(Code::config,
           "{}: this is a script, and a configuration is expected. Write the arguments of the program that it starts "
           "into a TOML file, by their names without --, flags as true; sd-scripts does so with --output_config",
           file_);
    return read(yaml::parse(text, problems_));
  }

  Config read(Node document, const Config& defaults = {}) {
    config_ = defaults;
    if (problems_.empty()) {
      const Node& run = unwrap(document);
      if (problems_.empty() && wrapped_) ai_toolkit::check(run, problems_);
      read_run(run);
      apply_switches();
      apply_option_aliases();
      if (problems_.empty() && wrapped_) ai_toolkit::settle(config_, run, needs_.plugins, needs_.usual_rate);
    }
    if (config_.training_folder.empty()) config_.training_folder = defaults.training_folder;
    for (DatasetConfig& dataset : config_.datasets) dataset.captioned = !config_.slider.on();
    config_.model.with_sound = std::ranges::any_of(config_.datasets, &DatasetConfig::do_audio);
    if (!problems_.empty()) report();
    for (const std::string& note : config_.notes) log_info("{}: {}", file_, note);
    if (!ignored_.empty())
      log_info("{}: keys without effect here (docs/config.md says why): {}", file_, fmt::join(ignored_, ", "));
    return std::move(config_);
  }

 private:
  struct Seen {
    std::string name;
    const Node* value;
  };

  static constexpr size_t most_problems = 100;  // more are of a file that is no configuration

  bool enough() const { return problems_.size() >= most_problems; }

  void problem(Place place, std::string_view key, const std::string& text) {
    if (alone_) return;
    problems_.push_back({place, key.empty() ? text : fmt::format("{}: {}", key, text)});
  }

  // Problems in the order of the file, one a line.
  [[noreturn]] void report() {
    std::ranges::stable_sort(problems_, {}, &yaml::Problem::place);
    std::vector<std::string> lines;
    for (const auto& [place, text] : problems_)
      lines.push_back(fmt::format("{}:{}:{}: {}", file_, place.line, place.column, text));
    if (enough()) lines.push_back(file_ + ": and perhaps more: correct these first");
    throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
  }

  // The mapping that holds the run's keys: the document itself, or the process inside ai-toolkit's wrapper.
  const Node& unwrap(Node& document) {
    static const Node empty{.kind = Kind::map};
    if (document.kind == Kind::null) return empty;
    if (document.kind != Kind::map) {
      problem(document.place, "", "expected a mapping of keys, found " + yaml::describe(document));
      return empty;
    }
    if (const Node* field = document.find_key("LoRA_type")) return refuse_preset(*field), empty;
    if (!document.find("config") && !document.find("job")) return document;

    wrapped_ = true;
    config_ = ai_toolkit::defaults();
    const Node* given = document.find("config");
    const Node* named = given == nullptr ? nullptr : given->find("name");
    ai_toolkit::replace_marks(document, named == nullptr ? "" : named->text, problems_);
    const Node* config = nullptr;
    for (const auto& [key, value] : document.entries) {
      if (key.text == "config") {
        config = &value;
      } else if (key.text == "job") {
        if (!one_of(value.text, {"extension", "train"})) return refuse_job(value), empty;
      } else if (key.text != "meta") {
        problem(key.place, key.text, "unknown key. Beside job there are config and meta");
      }
    }
    if (!config || config->kind != Kind::map) {
      problem(config ? config->place : document.place, "config", "missing: expected a mapping with name and process");
      return empty;
    }
    const Node* process = nullptr;
    for (const auto& [key, value] : config->entries) {
      if (key.text == "process")
        process = &value;
      else if (key.text == "name")
        read_key(*schema::find("name"), key, value, "name", nullptr);
      else
        problem(key.place, "config." + key.text, "unknown key. In config there are name and process");
    }
    if (!process || process->kind != Kind::list || process->items.size() != 1 || process->items[0].kind != Kind::map) {
      problem(process ? process->place : config->place, "config.process", "expected a list of one mapping");
      return empty;
    }
    const Node& run = process->items[0];
    if (const Node* type = run.find("type");
        type && !one_of(type->text, {"sd_trainer", "ui_trainer", "diffusion_trainer", ai_toolkit::slider_type})) {
      problems_.clear();  // what is said of another kind of job is of no use
      needs_ = {.model = false, .datasets = false, .plugins = needs_.plugins, .arch = false};
      problem(
          type->place, "type",
          fmt::format("this process is not for training a LoRA of images, found {}. Use sd_trainer, with a network, "
                      "or {} for a slider",
                      yaml::describe(*type), ai_toolkit::slider_type));
      return empty;
    }
    return run;
  }

  // What the interface kohya_ss saves (kohya_ss.h).
  void refuse_preset(const Node& field) {
    needs_ = {.model = false, .datasets = false, .plugins = needs_.plugins, .arch = false};
    problem(field.place, "",
            "this is a preset of the interface kohya_ss: it is read as one where the name of its file ends in .json "
            "(docs/from-kohya.md)");
  }

  // Jobs of ai-toolkit that train nothing. Other problems of the file are of no use then.
  void refuse_job(const Node& job) {
    const std::string instead =
        job.text == "generate"  ? ". For images from prompts: lora-host sample"
        : job.text == "extract" ? ". For a LoRA of what a tuned model has more: lora-host extract"
        : job.text == "mod"     ? ". For a LoRA at another strength: lora-host merge --lora FILE:STRENGTH --into lora"
                                : "";
    needs_ = {.model = false, .datasets = false, .plugins = needs_.plugins, .arch = false};
    problem(job.place, "job", fmt::format("must be extension or train, found {}{}", yaml::describe(job), instead));
  }

  void read_run(const Node& run) {
    root_ = &run;
    read_section(run, "", "", nullptr);
    if (needs_.model && config_.model.name_or_path.empty() && !seen_.contains("model.name_or_path"))
      missing(section_place("model"), *schema::find("model.name_or_path"));
    if (needs_.datasets && !run.find("datasets"))
      problem({}, "datasets", "missing. Expected a list, such as datasets: [{folder_path: images}]");
  }

  void missing(Place place, const schema::Key& key) { missing(place, key, std::string(key.path)); }
  void missing(Place place, const schema::Key& key, const std::string& shown) {
    problem(place, shown, fmt::format("missing. {}", key.doc));
  }

  Place section_place(std::string_view section) const {
    const Node* key = root_->find_key(section);
    return key ? key->place : Place{};
  }

  // `path` as in the schema ("datasets[]"), `shown` as the user counts ("datasets[0]").
  void read_section(const Node& section, const std::string& path, const std::string& shown, DatasetConfig* dataset) {
    Entries entries;
    for (const auto& [key, value] : section.entries) {
      if (enough()) return;
      const auto join = [&word = key.text](const std::string& front) {
        return front.empty() ? word : fmt::format("{}.{}", front, word);
      };
      const std::string full = join(path), name = join(shown);
      if (full == "datasets") {
        read_datasets(value);
      } else if (full == "type" && wrapped_) {  // checked by unwrap()
        continue;
      } else if (full == "network.network_kwargs" && value.kind == Kind::map) {
        read_network_kwargs(value, full, name);
      } else if (const schema::Key* row = schema::find(full)) {
        read_key(*row, key, value, name, dataset);
      } else if (const schema::EntryAlias* entry = lookup(schema::entry_aliases(), full)) {
        add_entries(*entry, key, value, name, entries);
      } else if (schema::is_section(full)) {
        if (value.kind == Kind::map)
          read_section(value, full, name, dataset);
        else if (value.kind != Kind::null)
          problem(value.place, name, "expected a mapping, found " + yaml::describe(value));
      } else {
        read_foreign(key, value, full, name);
      }
    }
    if (entries.alias != nullptr) read_entries(entries, dataset);
  }

  // Options of the adapter, among which ai-toolkit and LyCORIS have keys of the network.
  void read_network_kwargs(const Node& section, const std::string& path, const std::string& shown) {
    for (const auto& [key, value] : section.entries) {
      const std::string full = path + "." + key.text, name = shown + "." + key.text;
      if (const schema::Key* row = schema::find(full))
        read_key(*row, key, value, name, nullptr);
      else if (schema::is_taken(full))
        read_foreign(key, value, full, name);
      else if (value.kind == Kind::map)
        problem(value.place, name, "expected a value or a list");
      else
        config_.network.network_kwargs[key.text] = {.value = value, .key = key.place, .source = file_};
    }
  }

  // Those of a dataset, or all others.
  void apply_switches(DatasetConfig* dataset = nullptr) {
    for (const schema::Switch& row : schema::switches()) {
      if (row.path.starts_with("datasets[]") != (dataset != nullptr)) continue;
      const auto at = switched_.find(row.path);
      if (at == switched_.end()) continue;
      act(at->second, dataset, row.apply);
      switched_.erase(at);
    }
    if (dataset != nullptr) return;
    for (const auto& [word, seen] : is_arch_)
      act(seen, nullptr, [&word = word](schema::Acting& on, const Node& value) { apply_arch(on, word, value); });
  }

  void act(const Seen& seen, DatasetConfig* dataset, const auto& apply) {
    schema::Acting acting{.config = config_,
                          .dataset = dataset,
                          .problems = {},
                          .file = file_,
                          .arch = needs_.arch ? needs_.plugins : nullptr};
    apply(acting, *seen.value);
    if (acting.alone) problems_.clear();
    for (const std::string& text : acting.problems) problem(seen.value->place, seen.name, text);
    alone_ |= acting.alone;
  }

  void apply_option_aliases() {
    for (const auto& [row, given] : aliased_) {
      GivenOptions& options = config_.network.network_kwargs;
      Node value = *given.second;
      if (!row->on.empty() && yaml::flag_of(value) == true) value.text = row->on;
      if (!row->adapter.empty() && row->adapter != config_.network.type)
        ignored_.emplace_back(row->path);
      else if (!options.emplace(row->option, GivenOption{std::move(value), given.first->place, file_}).second)
        problem(given.first->place, row->path,
                fmt::format("the same setting as network_kwargs.{}: keep one of them", row->option));
    }
  }

  void read_datasets(const Node& list) {
    if (list.kind != Kind::list)
      return problem(list.place, "datasets", "expected a list, found " + yaml::describe(list));
    if (list.items.empty() && needs_.datasets) problem(list.place, "datasets", "expected at least one dataset");
    for (size_t i = 0; i < list.items.size() && !enough(); ++i) {
      const Node& item = list.items[i];
      const std::string shown = fmt::format("datasets[{}]", i);
      if (item.kind != Kind::map) {
        problem(item.place, shown, "expected a mapping, found " + yaml::describe(item));
        continue;
      }
      DatasetConfig dataset = wrapped_ ? ai_toolkit::dataset_defaults() : DatasetConfig{};
      read_section(item, "datasets[]", shown, &dataset);
      apply_switches(&dataset);
      if (const std::string wrong = dataset.problem_of_batch_size(); !wrong.empty())
        problem(item.find_key("batch_size")->place, shown + ".batch_size", wrong);
      if (dataset.folder_path.empty() && !seen_.contains(shown + ".folder_path"))
        missing(item.place, *schema::find("datasets[].folder_path"), shown + ".folder_path");
      config_.datasets.push_back(std::move(dataset));
    }
  }

  void read_key(const schema::Key& row, const Node& key, const Node& value, const std::string& name,
                DatasetConfig* dataset) {
    // An alias and the key itself, or two aliases, may both be there as long as they agree.
    std::string known(row.path);
    if (dataset) known = name.substr(0, name.find('.')) + known.substr(known.find('.'));
    const auto [before, first] = seen_.try_emplace(known, Seen{name, &value});
    if (!first && (before->second.value->text != value.text || value.kind != Kind::scalar))
      problem(key.place, name,
              fmt::format("the same setting as {} in line {}: keep one of them", before->second.name,
                          before->second.value->place.line));
    std::vector<yaml::Problem> found;
    DatasetConfig unused;
    const schema::Field field = row.field(config_, dataset ? *dataset : unused);
    schema::assign(row, field, value, found);
    if (GivenOptions* const* options = std::get_if<GivenOptions*>(&field))
      for (auto& [option, given] : **options) given.source = file_;
    if (schema::Phases* const* phases = std::get_if<schema::Phases*>(&field))
      for (Phase& phase : **phases) phase.source = file_;
    if (schema::Samples* const* samples = std::get_if<schema::Samples*>(&field))
      for (SampleItem& item : **samples)
        for (auto& [image, path] : item.images) path.source = file_;
    if (ImagePaths* const* images = std::get_if<ImagePaths*>(&field))
      for (auto& [image, paths] : **images)
        for (GivenValue& path : paths) path.source = file_;
    if (found.empty()) check_names(row, field, value, found);
    for (const auto& [place, text] : found) problem(value.kind == Kind::null ? key.place : place, name, text);
    if (row.rules.required && found.empty() && (value.kind == Kind::null || value.text.empty()))
      problem(key.place, name, fmt::format("is empty. {}", row.doc));
  }

  // Names of what plugins have, among them those of phases.
  void check_names(const schema::Key& row, const schema::Field& field, const Node& value,
                   std::vector<yaml::Problem>& problems) const {
    if (!needs_.wrong_name) return;
    const auto check = [&](std::string_view key, const std::string& given, Place place) {
      if (const std::string wrong = given.empty() ? "" : needs_.wrong_name(key, given); !wrong.empty())
        problems.push_back({place, wrong});
    };
    if (std::string* const* given = std::get_if<std::string*>(&field)) check(row.path, **given, value.place);
    if (schema::Phases* const* phases = std::get_if<schema::Phases*>(&field))
      for (const Phase& phase : **phases)
        if (const Node* given = phase.settings.find("optimizer")) check("train.optimizer", given->text, given->place);
  }

  // Entries of one mapping that stand under names of their own, as ai-toolkit has them.
  struct Entries {
    const schema::EntryAlias* alias = nullptr;
    Node key;                             // of the first
    std::string name;                     // likewise
    std::map<int, std::vector<Node>> by;  // values, by the number in the name; 0: there is none
  };

  void add_entries(const schema::EntryAlias& alias, const Node& key, const Node& value, const std::string& name,
                   Entries& into) {
    const std::vector<Node> all = value.kind == Kind::list ? value.items : std::vector<Node>{value};
    for (const Node& each : all) {
      if (yaml::asks_for_nothing(each)) continue;  // as if it were not there
      if (into.alias == nullptr) {
        into.alias = &alias;
        into.key = key;
        into.name = name;
      }
      into.by[alias.number].push_back(each);
    }
  }

  // One after another without gaps, `entry`, `entry_2`, ...; those with numbers take the place of the one without.
  void read_entries(Entries& entries, DatasetConfig* dataset) {
    if (entries.by.size() > 1) entries.by.erase(0);
    Node mapping{.kind = Kind::map, .place = entries.key.place};
    for (const auto& [number, values] : entries.by)
      for (const Node& value : values) {
        Node entry = entries.key;
        const size_t before = mapping.entries.size();
        entry.text = fmt::format("{}{}", entries.alias->entry, before == 0 ? "" : fmt::format("_{}", before + 1));
        mapping.entries.emplace_back(entry, value);
      }
    read_key(*schema::find(entries.alias->key), entries.key, mapping, entries.name, dataset);
  }

  // Keys that exist in ai-toolkit only, and unknown ones.
  void read_foreign(const Node& key, const Node& value, const std::string& path, const std::string& name) {
    if (const schema::OptionAlias* option = lookup(schema::option_aliases(), path)) {
      aliased_.emplace_back(option, std::pair(&key, &value));
    } else if (const schema::Switch* row = lookup(schema::switches(), path)) {
      switched_[row->path] = {name, &value};
    } else if (lookup(schema::ignored(), path)) {
      ignored_.push_back(name);
    } else if (const schema::Refused* refused = lookup(schema::refused(), path)) {
      if (!is_harmless(value, refused->harmless))
        problem(key.place, name, fmt::format("not supported: {}", refused->fix));
    } else if (path.starts_with("model.is_") && yaml::flag_of(value)) {
      if (*yaml::flag_of(value)) is_arch_[key.text] = {name, &value};
    } else if (path == "model." + key.text) {
      keep(key, value);
    } else {
      const std::string_view theirs = kohya::ours(key.text), other = in_other_words(path);
      const std::string near = schema::nearest(path);
      if (!other.empty())
        problem(key.place, name, fmt::format("unknown key; here it is {}", other));
      else if (!theirs.empty())
        problem(key.place, name, fmt::format("a key of kohya's scripts; here it is {}", theirs));
      else
        problem(key.place, name, near.empty() ? "unknown key" : fmt::format("unknown key. Did you mean {}?", near));
    }
  }

  // A key that the model's plugin may have.
  void keep(const Node& key, const Node& value) {
    const std::string name = "model." + key.text;
    const auto has = [&](const PluginKeys& plugin) { return plugin.find(key.text) != nullptr; };
    if (needs_.plugins != nullptr && std::ranges::none_of(*needs_.plugins, has))
      return problem(key.place, name, unknown_model_key(key.text, *needs_.plugins));
    if (value.kind != Kind::scalar && value.kind != Kind::null)
      return problem(value.place, name, "expected a single value, found " + yaml::describe(value));
    config_.model.given[key.text] = {value.text, file_, key.place.line, key.place.column};
  }

  std::string file_;
  ConfigNeeds needs_;
  Config config_;
  const Node* root_ = nullptr;
  bool wrapped_ = false;
  std::vector<yaml::Problem> problems_;
  bool alone_ = false;                // there is one, beside which no other is of use
  std::map<std::string, Seen> seen_;  // setting -> where it was first set
  std::map<std::string_view, Seen> switched_;
  std::map<std::string, Seen> is_arch_;  // is_NAME, where it is true
  std::vector<std::string> ignored_;
  std::vector<std::pair<const schema::OptionAlias*, std::pair<const Node*, const Node*>>> aliased_;
};

}  // namespace

std::string DatasetConfig::problem_of_batch_size() const {
  if (batch_size.size() <= 1 || batch_size.size() == resolution.size()) return "";
  return fmt::format("expected one number, or one for each of the {} resolutions, found {}", resolution.size(),
                     batch_size.size());
}

Config parse_config(const std::string& text, const std::string& file, ConfigNeeds needs) {
  return Reader(file, needs).read(text);
}

Config config_of(const Node& document, const std::string& file, ConfigNeeds needs, const Config& defaults) {
  return Reader(file, needs).read(document, defaults);
}

std::string read_config_text(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    fail(Code::config, "{}: expected a file, found a directory", file.string());
  // The file is read for its plugin first, and then as a whole.
  if (std::filesystem::is_fifo(file, error))
    fail(Code::config, "{}: expected a file, found a pipe, which can be read once only: write it to a file",
         file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail(Code::config, "{}: cannot be opened: {}", file.string(), std::generic_category().message(errno));
  // One byte more than allowed is enough to see that a file is too large.
  std::string text(static_cast<size_t>(yaml::max_bytes) + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) fail(Code::config, "{}: cannot be read", file.string());
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

Config load_config(const std::filesystem::path& file, ConfigNeeds needs) {
  return parse_config(read_config_text(file), file.string(), needs);
}

namespace {

// The mapping of the run's keys in a file that was looked at before it is read: as it is, or in ai-toolkit's wrapper.
const Node* run_in(const Node& document) {
  if (const Node* config = document.find("config"))
    if (const Node* process = config->find("process"); process && process->items.size() == 1) return &process->items[0];
  return &document;
}

}  // namespace

std::string plugin_named_in(const std::filesystem::path& file) try {
  std::vector<yaml::Problem> problems;
  const Node document = yaml::parse(read_config_text(file), problems);
  const Node* plugin = run_in(document)->find("plugin");
  return plugin == nullptr || !problems.empty() ? "" : plugin->text;
} catch (const Error&) {
  return {};
}

std::string place_in(const std::filesystem::path& file, std::initializer_list<std::string_view> path) try {
  std::vector<yaml::Problem> problems;
  const Node document = yaml::parse(read_config_text(file), problems);
  const Node *at = run_in(document), *key = nullptr;
  for (const std::string_view name : path) {
    key = at == nullptr ? nullptr : at->find_key(name);
    at = at == nullptr ? nullptr : at->find(name);
  }
  if (key == nullptr || !problems.empty()) return {};
  return fmt::format("{}:{}:{}: ", file.string(), key->place.line, key->place.column);
} catch (const Error&) {
  return {};
}

Config load_config(const std::filesystem::path& file) { return load_config(file, ConfigNeeds{}); }

}  // namespace lh
