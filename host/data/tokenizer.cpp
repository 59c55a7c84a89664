// Chooses the files of a tokenizer, fills the template, and pads and cuts what the model of tokens gives.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/hash.h"
#include "data/quoted_text.h"
#include "data/token_model.h"
#include "data/tokenizer_yaml.h"
#include "data/unicode.h"
#include "io/file.h"
#include "io/weight_file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr int64_t max_file_bytes = 64 << 20, max_preset_bytes = 1 << 20;
constexpr const char* preset_file = "tokenizer.yaml";

bool is_algorithm(const std::string& kind) {
  const std::vector<std::string> known = tokenizer_algorithms();
  return std::ranges::find(known, kind) != known.end();
}

// The tokenizer.yaml of a bundled folder; nothing where it has none.
std::optional<TokenizerPreset> find_preset(const std::string& name, const fs::path& plugin, fs::path& file) {
  for (const fs::path& folder : bundled_tokenizer_folders(name, plugin)) {
    std::error_code error;
    file = folder / preset_file;
    if (fs::is_regular_file(file, error)) return read_tokenizer_preset(read_text(file, max_preset_bytes), file);
    if (fs::is_directory(folder, error)) break;
  }
  return std::nullopt;
}

// Text encoders are published with their tokenizer.json inside, as a tensor of its bytes.
std::string text_of(const fs::path& path) {
  if (path.extension() != ".safetensors") return read_text(path, max_file_bytes);
  constexpr const char* name = "tokenizer_json";
  const FilePtr file = open_weight_file(path);
  const StoredTensor* tensor = file->find(name);
  if (tensor == nullptr || tensor->desc.dtype != DType::u8 || tensor->desc.bytes() > max_file_bytes)
    fail(Code::data, "tokenizer {}: expected a tensor \"{}\" of at most {} bytes (U8), found {}: give tokenizer.json",
         path.string(), name, max_file_bytes, tensor == nullptr ? "none" : tensor->desc.text());
  std::string text(static_cast<size_t>(tensor->desc.bytes()), '\0');
  file->read(*tensor, std::as_writable_bytes(std::span(text)));
  return text;
}

nlohmann::json to_json(const TokenName& token) {
  if (const auto* id = std::get_if<int32_t>(&token)) return *id;
  return std::get<std::string>(token);
}

nlohmann::json to_json(const std::optional<std::vector<TokenName>>& tokens) {
  if (!tokens) return nullptr;
  nlohmann::json list = nlohmann::json::array();
  for (const TokenName& token : *tokens) list.push_back(to_json(token));
  return list;
}

std::string fingerprint_of(const TokenizerSpec& spec, const TokenizerSource& source) {
  nlohmann::json said = {spec.kind,
                         spec.text,
                         spec.system,
                         spec.drop,
                         spec.lower,
                         spec.strip,
                         spec.pad ? to_json(*spec.pad) : nullptr,
                         to_json(spec.begin),
                         to_json(spec.end),
                         spec.side == TokenizerSpec::Side::left,
                         spec.mask,
                         source.rules};
  if (!spec.picture.empty()) said.insert(said.end(), {spec.picture, spec.place});
  if (spec.negative_text) said.push_back(*spec.negative_text);
  Sha256 hash;
  hash.update(said.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  add_files(hash, source);
  return hash.hex();
}

// A text with others in place of names in braces, from left to right: what those hold is never taken for a name.
using Texts = std::map<std::string, std::string>;
std::string filled(std::string_view text, const Texts& texts) {
  std::string out;
  while (!text.empty()) {
    const size_t next = text.find('{'), end = text.find('}', next);
    out += text.substr(0, next);
    if (next == std::string_view::npos) break;
    const auto found = texts.find(std::string(text.substr(next, end == text.npos ? end : end - next + 1)));
    out += found == texts.end() ? "{" : found->second;
    text.remove_prefix(found == texts.end() ? next + 1 : end + 1);
  }
  return out;
}

std::string pictures_of(const TokenizerSpec& spec, const std::vector<int64_t>& places) {
  std::string all;
  for (size_t i = 0; i < places.size(); ++i) {
    std::string each;
    for (int64_t n = 0; n < places[i]; ++n) each += spec.place;
    all += filled(spec.picture, {{"{number}", std::to_string(i + 1)}, {"{places}", each}});
  }
  return all;
}

}  // namespace

Tokenizer::Tokenizer(const TokenizerSpec& spec, const TokenizerPlaces& places)
    : spec_(spec), source_(std::make_unique<TokenizerSource>()) {
  const bool named = !is_algorithm(spec.kind);
  if (named && spec_.files.bundled.empty()) spec_.files.bundled = spec.kind;
  const std::string name = named ? spec.kind : spec.files.bundled;
  fs::path file;
  const auto preset = name.empty() ? std::nullopt : find_preset(name, places.plugin, file);
  source_->rules_from = "rules of the recipe";
  if (named && !preset) {
    std::string tried;
    for (const fs::path& folder : bundled_tokenizer_folders(name, places.plugin))
      tried += "\n  " + (folder / preset_file).string();
    fail(Code::data,
         "tokenizer kind `{}` is not known to this host: it is none of {}, and there is no preset; tried:{}", name,
         fmt::join(tokenizer_algorithms(), ", "), tried);
  }
  if (preset) {
    if (named) spec_.kind = preset->spec.kind;
    if (!is_algorithm(spec_.kind) || preset->spec.kind != spec_.kind)
      fail(Code::data, "tokenizer {}: expected kind {}, found {}", file.string(),
           named ? fmt::format("{}", fmt::join(tokenizer_algorithms(), " or ")) : spec.kind, preset->spec.kind);
    if (!spec_.pad) spec_.pad = preset->spec.pad;
    if (!spec_.begin) spec_.begin = preset->spec.begin;
    if (!spec_.end) spec_.end = preset->spec.end;
    if (spec_.rules.empty()) {
      spec_.rules = preset->spec.rules;
      source_->rules_from = file.string();
    }
  }
  if (!spec_.pad)
    fail(Code::plugin, "tokenizer of kind {}: nothing says which token is the pad: give `pad`", spec.kind);
  for (const fs::path& path : find_tokenizer_files(spec_.kind, spec_.files, places))
    source_->files.push_back({path, text_of(path)});
  source_->rules = spec_.rules;
  if (preset && source_->files.front().path.parent_path() == file.parent_path()) {
    source_->tokens = preset->tokens;
    source_->merges = preset->merges;
  }
  fingerprint_ = fingerprint_of(spec_, *source_);
}

Tokenizer::~Tokenizer() = default;

int32_t Tokenizer::resolve(const char* field, const TokenName& token) const {
  const std::string file = source_->files.front().path.string();
  if (const auto* id = std::get_if<int32_t>(&token)) {
    if (!model_->has(*id)) fail(Code::data, "tokenizer {}: {}: there is no token with id {}", file, field, *id);
    return *id;
  }
  const auto id = model_->id_of(std::get<std::string>(token));
  if (!id) fail(Code::data, "tokenizer {}: {}: there is no token \"{}\"", file, field, std::get<std::string>(token));
  return *id;
}

void Tokenizer::load() const {
  model_ = token_model(spec_.kind, *source_);
  const auto resolve_all = [&](const char* field, const auto& said, std::vector<int32_t> of_the_files) {
    if (!said) return of_the_files;
    std::vector<int32_t> ids;
    for (const TokenName& token : *said) ids.push_back(resolve(field, token));
    return ids;
  };
  frame_ = {resolve_all("begin", spec_.begin, model_->begin()), resolve_all("end", spec_.end, model_->end()),
            resolve("pad", *spec_.pad), spec_.place.empty() ? 0 : resolve("pictures.place", TokenName(spec_.place))};
  source_.reset();
}

const TokenModel& Tokenizer::model() const {
  std::call_once(loaded_, [this] { load(); });
  return *model_;
}

const Tokenizer::Frame& Tokenizer::frame() const {
  model();
  return frame_;
}

std::vector<int32_t> Tokenizer::encode(const std::string& prompt, const std::vector<int64_t>& places,
                                       bool negative) const {
  std::string words = prompt;
  if (spec_.lower || spec_.strip) {
    icu::UnicodeString text = from_utf8(prompt);
    if (spec_.strip) text = stripped(text);
    if (spec_.lower) text = lower_case(text);
    words = to_utf8(text);
  }
  const std::string& text = negative && spec_.negative_text ? *spec_.negative_text : spec_.text;
  Texts texts{{"{prompt}", words}, {"{system}", spec_.system}, {"{pictures}", pictures_of(spec_, places)}};
  if (const auto quotes = QuotesPlace::find(text)) texts.emplace(quotes->whole, quotes->of(words));
  return model().ids(filled(text, texts));
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSpec& spec, const TokenizerPlaces& places) {
  return std::make_unique<Tokenizer>(spec, places);
}

TokenRows tokenize(const Tokenizer& tokenizer, const std::string& prompt, int64_t length, int64_t rows,
                   const std::vector<int64_t>& places, bool negative) {
  const Tokenizer::Frame& frame = tokenizer.frame();
  const int64_t room = length - static_cast<int64_t>(frame.begin.size() + frame.end.size());
  if (room < 0)
    fail(Code::internal, "tokenizer: there must be room for {} ids, not {}", frame.begin.size() + frame.end.size(),
         length);
  if (rows > 1 && room != tokenizer.spec().row_tokens)
    fail(Code::plugin, "tokenizer of kind {}: a row of {} tokens has room for {} of a text, the recipe says {}",
         tokenizer.spec().kind, length, room, tokenizer.spec().row_tokens);
  const std::vector<int32_t> text = tokenizer.encode(prompt, places, negative);
  const bool left = tokenizer.spec().side == TokenizerSpec::Side::left;
  TokenRows out;
  auto at = text.begin();
  for (int64_t row = 0; row < rows; ++row) {
    const auto end = at + std::min<std::ptrdiff_t>(room, text.end() - at);
    std::vector<int32_t> ids = frame.begin;
    ids.insert(ids.end(), at, end);
    ids.insert(ids.end(), frame.end.begin(), frame.end.end());
    at = end;
    const auto pads = static_cast<size_t>(length) - ids.size();
    std::vector<int32_t> mask(ids.size(), 1);
    ids.insert(left ? ids.begin() : ids.end(), pads, frame.pad);
    mask.insert(left ? mask.begin() : mask.end(), pads, 0);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.mask.insert(out.mask.end(), mask.begin(), mask.end());
  }
  out.cut = text.end() - at;
  return out;
}

}  // namespace lh
