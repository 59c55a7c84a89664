// What a recipe says of one tokenizer: how text becomes ids, and where the files lie. docs/plugin-guide.md has the
// YAML.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lh {

// A token by its id, or by its text, which the vocabulary turns into an id.
using TokenName = std::variant<int32_t, std::string>;

struct TokenizerSpec {
  enum class Side { right, left };
  struct Files {
    std::string folder;   // of a diffusers directory, such as "tokenizer_2"
    std::string config;   // key of the user's configuration that names a folder or file, such as "tokenizer_path"
    std::string bundled;  // folder that ships with the plugin or the host, such as "qwen3"
  };

  std::string kind;  // an algorithm, or the name of a preset: a folder with tokenizer.yaml (tokenizer_preset.h)
  Files files;
  std::string text = "{prompt}";             // `template`: {prompt}, {system} and {pictures} stand for texts
  std::optional<std::string> negative_text;  // `negative_template`: of negative prompts of samples, where it is another
  std::string system;                        // the text of {system}
  // Text of {pictures} for each picture, {number} from 1, with a `place` for each place of it at {places}; empty: none.
  std::string picture, place;
  int64_t drop = 0;    // leading tokens whose rows the conditioner leaves out
  bool lower = false;  // the prompt in lower case
  bool strip = false;  // the prompt without white space around it
  std::optional<TokenName> pad;
  std::optional<std::vector<TokenName>> begin, end;  // around the ids of a text; the files' own where absent
  Side side = Side::right;                           // where the pads go
  int64_t length = 0;                                // tokens, begin, end and pads included
  int64_t max_length = 0;  // model.max_sequence_length may set `length` up to this; 0 = it may not
  // A long text goes on in further rows of `length` tokens, each with begin and end around `row_tokens`; 0: it does
  // not.
  int64_t row_tokens = 0;
  int64_t rows = 1, max_rows = 1;  // model.max_token_length sets how many there are, up to the second
  bool mask = false;               // the conditioner is told which tokens are pads
  bool optional = false;           // the model also works without this encoder
  // JSON of a tokenizer.json without its vocabulary, for files that say nothing of how text is cut; empty: none.
  std::string rules;

  // What the conditioner's graph is told: "<encoder>.length"; "<encoder>.drop" and "<encoder>.rows" where the tokenizer
  // has them.
  void add_sizes(const std::string& encoder, std::map<std::string, int64_t>& sizes) const {
    sizes[encoder + ".length"] = length;
    if (drop > 0) sizes[encoder + ".drop"] = drop;
    if (max_rows > 1) sizes[encoder + ".rows"] = rows;
  }
};

}  // namespace lh
