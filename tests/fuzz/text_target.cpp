// Captions, tokenizers and the notes of plugins.
#include <elf.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "data/caption.h"
#include "data/token_model.h"
#include "fuzz/targets.h"
#include "lora_host/plugin.h"
#include "plugin/elf_note.h"

namespace lh::fuzz {
namespace {

// RFC 3629, by its table.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0; };
    const int b = byte(i), c = byte(i + 1);
    size_t more = 0;
    if (b < 0x80)
      more = 0;
    else if (b >= 0xc2 && b <= 0xdf)
      more = 1;
    else if (b >= 0xe0 && b <= 0xef && !(b == 0xe0 && c < 0xa0) && !(b == 0xed && c > 0x9f))
      more = 2;
    else if (b >= 0xf0 && b <= 0xf4 && !(b == 0xf0 && c < 0x90) && !(b == 0xf4 && c > 0x8f))
      more = 3;
    else
      return false;
    for (size_t k = 1; k <= more; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    i += 1 + more;
  }
  return true;
}

constexpr const char* texts[] = {"", "a photo of a cat, 12 \xc3\xa9\xe4\xb8\xad<s>", "aab  b\n\n\xf0\x9f\x98\x80 c's"};

// Whatever a model is made of, ids are those that it has.
void encode_all(const TokenModel& model) {
  for (const char* text : texts)
    for (const int32_t id : model.ids(text)) require(model.has(id), "ids are those of tokens");
  if (const auto id = model.id_of("a")) require(model.has(*id), "a token's id is one");
}

}  // namespace

bool caption(Bytes input) {
  return taken([&] {
    const std::string text = caption_of(std::string(text_of(input)), "caption");
    require(is_utf8(text), "a caption is UTF-8");
    require(!text.ends_with('\n') && !text.ends_with('\r'), "line ends at its end are dropped");
    const std::string with = with_trigger(text, "zwx");
    require(with.find("[trigger]") == with.npos && with.find("zwx") != with.npos, "the trigger word is put in");
  });
}

std::vector<std::string> caption_seeds() {
  return {"a photo of [trigger], \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\r\n", "\xef\xbb\xbfzwx", "",
          "[trigger][trigger]\n\n"};
}

// A tokenizer.json; or, behind a NUL, vocab.json, a NUL, merges.txt.
bool bpe(Bytes input) {
  const std::string_view text = text_of(input);
  TokenizerSource source;
  const size_t cut = text.starts_with('\0') ? text.find('\0', 1) : text.npos;
  if (cut == text.npos) {
    source.files = {{"tokenizer.json", std::string(text)}};
  } else {
    source.files = {{"vocab.json", std::string(text.substr(1, cut - 1))},
                    {"merges.txt", std::string(text.substr(cut + 1))}};
    source.rules = R"({"pre_tokenizer":{"type":"ByteLevel","use_regex":true},"model":{"byte_fallback":true}})";
    source.rules_from = "rules";
  }
  return taken([&] {
    const auto model = read_bpe(source);
    encode_all(*model);
  });
}

std::vector<std::string> bpe_seeds() {
  using nlohmann::json;
  const json vocabulary{{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}, {" ", 4}, {"c", 5}, {"\u0120", 6}};
  const auto with = [&](const json& more) {
    json file{
        {"version", "1.0"},
        {"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}, {"merges", json::array({"a b"})}}}};
    file.merge_patch(more);
    return file.dump();
  };
  const auto list = [](const json& item) { return json::array({item}); };
  return {
      with(json::object()),
      with({{"normalizer", {{"type", "Sequence"}, {"normalizers", list({{"type", "NFKC"}})}}},
            {"pre_tokenizer",
             {{"type", "Split"}, {"pattern", {{"Regex", "[^\\s]+"}}}, {"behavior", "Isolated"}, {"invert", true}}}}),
      with({{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}}},
            {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}}}}),
      with({{"added_tokens", list({{"id", 9}, {"content", "<s>"}, {"special", true}, {"lstrip", true}})},
            {"post_processor",
             {{"type", "TemplateProcessing"},
              {"single", json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                      {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
              {"pair", json::array()},
              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {9}}, {"tokens", {"<s>"}}}}}}}}}),
      with({{"post_processor", {{"type", "RobertaProcessing"}, {"sep", {"b", 1}}, {"cls", {"a", 0}}}},
            {"pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", list({{"type", "Digits"}, {"individual_digits", true}})}}}}),
      std::string(1, '\0') + vocabulary.dump() + std::string(1, '\0') + "#version: 0.2\na b\n",
  };
}

bool sentencepiece(Bytes input) {
  const TokenizerSource source{.files = {{"spiece.model", std::string(text_of(input))}}};
  return taken([&] {
    const auto model = read_sentencepiece(source);
    encode_all(*model);
  });
}

namespace {

// Fields of a protobuf message (sentencepiece_model.proto), by hand.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string field(int number, int value) { return {static_cast<char>(number << 3), static_cast<char>(value)}; }
std::string piece(const std::string& text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + std::string(1, 2 << 3 | 5) + bits + field(3, type));
}

}  // namespace

std::vector<std::string> sentencepiece_seeds() {
  const std::string pieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("\xe2\x96\x81", -1, 1) +
                             piece("a", -2, 1) +
                             piece(
                                 "\xe2\x96\x81"
                                 "a",
                                 -1.5, 1) +
                             piece("aa", -3, 1) + piece("b", 0, 4);
  const std::string normalizer = field(3, field(1, "identity") + field(3, 1) + field(4, 1) + field(5, 1));
  return {pieces + field(2, field(3, 1)) + normalizer, pieces + field(2, field(3, 2)) + normalizer,
          pieces + field(2, field(3, 3)), pieces + field(2, field(3, 4)) + normalizer};
}

bool note(Bytes input) {
  static MemoryFile memory;
  return taken([&] {
    const AbiNote found = read_abi_note(memory.holding(input));
    // Found in the file: its owner's name is, and both numbers behind it.
    const std::string_view file = text_of(input);
    require(file.find(std::string_view(LH_NOTE_OWNER, sizeof LH_NOTE_OWNER)) != file.npos,
            "a note has the owner's name");
    const uint16_t numbers[2] = {found.major, found.minor_needed};
    require(file.find(std::string_view(reinterpret_cast<const char*>(numbers), 4)) != file.npos,
            "numbers are the note's");
  });
}

std::vector<std::string> note_seeds() {
  const auto bytes = [](const auto& value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto library = [&](const std::string& notes, uint16_t type = ET_DYN) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = type;
#if defined(__x86_64__)
    header.e_machine = EM_X86_64;
#else
    header.e_machine = EM_AARCH64;
#endif
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    Elf64_Phdr load{}, segment{};
    load.p_type = PT_LOAD;
    load.p_filesz = sizeof header;
    segment.p_type = PT_NOTE;
    segment.p_offset = sizeof header + 2 * sizeof segment;
    segment.p_filesz = notes.size();
    return bytes(header) + bytes(load) + bytes(segment) + notes;
  };
  const auto one = [&](const std::string& owner, const std::string& text, uint32_t type) {
    const auto padded = [](std::string s) { return s.append((4 - s.size() % 4) % 4, '\0'); };
    return bytes(static_cast<uint32_t>(owner.size())) + bytes(static_cast<uint32_t>(text.size())) + bytes(type) +
           padded(owner) + padded(text);
  };
  const std::string mine(LH_NOTE_OWNER, sizeof LH_NOTE_OWNER), abi("\1\0\2\0", 4);
  return {library(one(mine, abi, LH_NOTE_TYPE)), library(one("GNU", "abcdef", 3) + one(mine, abi, LH_NOTE_TYPE)),
          library(one(mine, "\1", LH_NOTE_TYPE)), library("", ET_EXEC)};
}

}  // namespace lh::fuzz
