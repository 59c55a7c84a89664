// Tokenizers at work, and the rows that pictures take among a text's.
#include "encode/prompt_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"

namespace lh {

const Tokenizer& PromptTokens::tokenizer(const std::string& encoder) const {
  std::unique_ptr<Tokenizer>& made = tokenizers_[encoder];
  const TokenizerSpec& spec = model_.recipe().tokenizers.at(encoder);
  if (!made) made = make_tokenizer(spec, model_.tokenizer_places(spec));
  return *made;
}

std::map<std::string, std::string> PromptTokens::fingerprints() const {
  std::map<std::string, std::string> all;
  for (const auto& [encoder, spec] : model_.recipe().tokenizers) all[encoder] = tokenizer(encoder).fingerprint();
  return all;
}

Sizes PromptTokens::sizes() const {
  for (const std::string& encoder : model_.recipe().encoders()) {
    if (model_.checkpoint().has(encoder)) continue;
    const ComponentSpec* component = model_.spec().component(encoder);
    fail(Code::config, "model.{}: {} encoder '{}' is needed, but no file was given for it",
         component == nullptr ? encoder : component->config_key,
         model_.recipe().tokenizers.contains(encoder) ? "text" : "image", encoder);
  }
  Sizes sizes;
  for (const auto& [encoder, spec] : model_.recipe().tokenizers) spec.add_sizes(encoder, sizes);
  return sizes;
}

// As long as the text may be, and the pictures' places; where these begin is the same for every prompt.
Sizes PromptTokens::sizes(const PictureSizes& pictures) const {
  Sizes all = sizes(), at;
  for (const auto& [encoder, spec] : model_.recipe().tokenizers) {
    const std::vector<int64_t> places = picture_places(model_.recipe(), encoder, pictures);
    if (places.empty()) continue;
    const int64_t length = all[encoder + ".length"] = tokens_with_pictures(model_.recipe(), encoder, pictures);
    const Tokenizer& reader = tokenizer(encoder);
    const std::vector<int32_t> ids = tokenize(reader, "", length, spec.rows, places).ids;
    auto first = ids.begin();
    size_t next = 0;
    for (const auto& [input, picture] : model_.recipe().pictures) {
      if (picture.encoder != encoder) continue;
      first = std::find(first, ids.end(), reader.place());
      if (ids.end() - first < places[next])
        fail(Code::plugin, "plugin '{}': recipe: tokenizers.{}.template has no room for picture '{}'", model_.id(),
             encoder, input);
      at[input] = first - ids.begin();
      first += places[next++];
    }
  }
  for (const auto& [name, size] : picture_dimensions(pictures, at)) all[name] = size;
  return all;
}

std::shared_ptr<const Tokens> PromptTokens::of(const Prompt& prompt) {
  constexpr size_t most_kept = 1000;
  const std::string identity = prompt.identity();
  if (const auto known = last_.find(identity); known != last_.end()) return known->second;
  if (last_.size() >= most_kept) last_.clear();
  Tokens made;
  const auto& specs = model_.recipe().tokenizers;
  const PictureSizes pictures = picture_sizes(model_.recipe(), prompt);
  for (const auto& [encoder, spec] : specs) {
    const int64_t length = tokens_with_pictures(model_.recipe(), encoder, pictures);
    const TokenRows rows = tokenize(tokenizer(encoder), prompt.text, length, spec.rows,
                                    picture_places(model_.recipe(), encoder, pictures), prompt.negative);
    if (rows.cut > 0 && encoder == specs.rbegin()->first && warned_.insert(prompt.text).second)
      log_warning("prompt is {} tokens too long for {} and is cut: {:.60}...{}", rows.cut, encoder, prompt.text,
                  spec.rows < spec.max_rows
                      ? fmt::format(" (model.max_token_length: {} takes longer ones)", spec.max_rows * spec.row_tokens)
                      : "");
    const Shape shape{spec.rows, length};
    made[encoder + ".input_ids"] = HostTensor::from_ints(shape, rows.ids);
    if (spec.mask) made[encoder + ".attention_mask"] = HostTensor::from_ints(shape, rows.mask);
  }
  return last_.emplace(identity, std::make_shared<const Tokens>(std::move(made))).first->second;
}

}  // namespace lh
