// The keys of a configuration, one row each: where the value lives, what it may be, and a line of documentation.
//
// The same table reads files (load.cpp) and command line flags (cli/options.cpp), prints an effective configuration
// and makes the reference in docs/config.md (print.cpp), so that the four cannot disagree.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/range.h"
#include "config/yaml.h"

namespace lh {
struct PluginKeys;
}

namespace lh::schema {

using Texts = std::vector<std::string>;
using Integers = std::vector<int64_t>;
using Reals = std::vector<double>;
using Numbers = std::map<std::string, double>;
using Phases = std::vector<Phase>;
using Samples = std::vector<SampleItem>;
// Where the value of a key is kept; the type is also the type of the key.
using Field = std::variant<std::string*, std::filesystem::path*, int64_t*, double*, bool*, std::optional<double>*,
                           std::optional<std::string>*, Texts*, Integers*, Reals*, Numbers*, GivenOptions*, ImagePaths*,
                           Phases*, Samples*>;

struct Choice {
  std::string_view spelling, value;  // what a file may say, what the configuration then holds
};

struct Rules {
  Range range = {};
  std::span<const Choice> choices = {};
  std::span<const std::string_view> names = {};      // of a mapping: its keys; empty = any
  std::string (*normalize)(std::string&) = nullptr;  // of each text: changes it, or says what is wrong
  bool required = false;
  bool nonempty = false;  // of a list of integers
  bool lists = false;     // of a mapping of paths: a key may have several
};

struct Key {
  std::string_view path;  // "train.lr", "datasets[].folder_path", "name"
  Field (*field)(Config&, DatasetConfig&);
  std::string_view doc;
  Rules rules = {};
};

// Another spelling of a key, as ai-toolkit has it.
struct Alias {
  std::string_view path, key;
};

// Another spelling of one entry of a mapping: `control_path: x` for `images: {control: x}`.
struct EntryAlias {
  std::string_view path, key, entry;
  int number = 0;  // several with numbers are entries one after another, in place of one without
};

// A key of ai-toolkit that changes nothing here; `reason` is shown once when a file has it.
struct Ignored {
  std::string_view path, reason;
};

// A key of ai-toolkit that would change the result and is not supported: an error unless its value is `harmless`,
// or nothing, false, 0 or empty.
struct Refused {
  std::string_view path, fix, harmless = {};
};

// A key of another program that is an option of one adapter here; it changes nothing where the adapter is another.
struct OptionAlias {
  std::string_view path, adapter, option;  // adapter empty: of every one
  std::string_view on = {};                // the option's word for `true`
};

// What a key that acts on others can do.
struct Acting {
  Config& config;
  DatasetConfig* dataset;                         // of keys of datasets
  std::vector<std::string> problems;              // without the key's name
  bool alone = false;                             // what else is wrong with the file is of no use then
  std::string_view file = {};                     // that the key is in
  const std::vector<PluginKeys>* arch = nullptr;  // names of kinds of models; null: not known
  // true where the value is; else a problem is added and nothing returned.
  std::optional<bool> flag(const yaml::Node& value);
};

// A key of ai-toolkit that acts on others; applied in this order after the whole file, or the
// whole dataset, is read.
struct Switch {
  std::string_view path;
  void (*apply)(Acting&, const yaml::Node& value);
  std::string_view doc;
};

std::span<const Key> keys();
std::span<const Alias> aliases();
std::span<const EntryAlias> entry_aliases();
std::span<const Ignored> ignored();
std::span<const Refused> refused();
std::span<const OptionAlias> option_aliases();
std::span<const Switch> switches();

const Key* find(std::string_view path);  // by path or alias; nullptr when unknown
bool is_section(std::string_view path);  // has some table keys below it?
bool is_taken(std::string_view path);    // or is it a key of some table itself?
// The known path nearest to an unknown one, or empty when none is near. more: further keys of its section.
std::string nearest(std::string_view path, std::span<const std::string_view> more = {});

std::string type_name(const Key& key);  // "integer", "number or list of numbers"

}  // namespace lh::schema
