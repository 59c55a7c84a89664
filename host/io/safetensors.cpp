// The reader: sizes, offsets and names are checked before any byte of data is looked at.
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "io/cut_short.h"
#include "io/safetensors_header.h"
#include "io/stored_dtype.h"

namespace lh {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian and so is this reader");

namespace {

// What people pass by mistake, told by extension or first bytes.
std::string other_format(const InputFile& file) {
  static constexpr const char* pickle =
      "a PyTorch pickle, which can run code when it is read. Convert it to safetensors with a tool that you trust "
      "(safetensors.torch.save_file of its state dict), or download the .safetensors version";
  static constexpr std::array<std::pair<std::string_view, const char*>, 7> magics{{
      {"PK\x03\x04", pickle},
      {"\x80\x02", pickle},
      {"\x80\x04", pickle},
      {"GGUF", "a GGUF file, which holds the weights of a model and nothing else that is read here"},
      {"version https://git-lfs", "a Git LFS pointer, not the file itself. Run `git lfs pull`, or download the file"},
      {"<!DOCTYPE", "a web page, not the file itself. Download it again, signed in if the site asks for it"},
      {"<html", "a web page, not the file itself. Download it again, signed in if the site asks for it"},
  }};
  std::string head(static_cast<size_t>(std::min<int64_t>(file.size(), 32)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  for (const auto& [magic, text] : magics)
    if (head.starts_with(magic)) return text;
  return {};
}

void refuse_pickle_names(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 5> extensions{".ckpt", ".pt", ".pth", ".bin", ".pkl"};
  const std::string extension = path.extension().string();
  if (std::ranges::find(extensions, extension) != extensions.end())
    fail(Code::data,
         "{}: {} files are PyTorch pickles, which can run code when they are read. Convert it to safetensors "
         "with a tool that you trust (safetensors.torch.save_file of its state dict), or download the .safetensors "
         "version",
         path.string(), extension);
}

int64_t header_length(const InputFile& file) {
  const std::string path = file.path().string();
  uint64_t length = 0;
  if (file.size() < 10)
    throw CutShort(fmt::format("{}: {} bytes, too short for a safetensors file", path, file.size()));
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length <= static_cast<uint64_t>(safetensors_header_limit) && length <= static_cast<uint64_t>(file.size() - 8))
    return static_cast<int64_t>(length);
  if (const std::string other = other_format(file); !other.empty()) fail(Code::data, "{}: this is {}", path, other);
  if (length > static_cast<uint64_t>(safetensors_header_limit))
    fail(Code::data, "{}: header of {} bytes, expected at most {}. This is not a safetensors file, or it is damaged",
         path, length, safetensors_header_limit);
  throw CutShort(fmt::format("{}: file ends at {} bytes but its header alone needs {}. The file is cut short", path,
                             file.size(), length + 8));
}

// Shape and offsets of one entry agree.
void check_size(const std::string& path, const HeaderEntry& entry) {
  int64_t bytes = 0;
  try {
    bytes = entry.desc.bytes();
  } catch (const Error&) {
    fail(Code::data,
         "{}: tensor \"{}\": shape {} x {} overflows 64 bits. The file is damaged or hostile and was not loaded", path,
         entry.name, entry.desc.shape.text(), stored_dtype_name(entry.desc.dtype));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    fail(Code::data, "{}: tensor \"{}\": {} {} needs {} bytes, its offsets [{}, {}] give {}. The file is damaged", path,
         entry.name, stored_dtype_name(entry.desc.dtype), entry.desc.shape.text(), bytes, entry.begin, entry.end,
         entry.end - entry.begin);
}

// Tensors, sorted by offset, fill the data without hole or overlap and end where the file does.
void check_layout(const std::string& path, const std::vector<HeaderEntry>& entries, int64_t data_start,
                  int64_t file_size) {
  int64_t position = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry& entry : entries) {
    if (entry.begin != position)
      fail(Code::data, "{}: tensor \"{}\" starts at data byte {}, expected {} (the end of {}): {}. The file is damaged",
           path, entry.name, entry.begin, position, previous ? fmt::format("\"{}\"", previous->name) : "the header",
           entry.begin < position ? "tensors overlap" : "there is a hole");
    position = entry.end;
    previous = &entry;
  }
  const int64_t end = checked_add(data_start, position);
  const std::string last = previous ? fmt::format("last tensor {}", previous->name) : "no tensors";
  if (end > file_size)
    throw CutShort(fmt::format("{}: file ends at {} bytes but the header promises {} ({}). The file is cut short", path,
                               file_size, end, last));
  if (end < file_size)
    fail(Code::data,
         "{}: {} bytes follow the data, which ends at {} ({}). The file is damaged or holds something else too", path,
         file_size - end, end, last);
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path)
    : WeightFile((refuse_pickle_names(path), InputFile(path)), "safetensors") {
  const std::string name = path.string();
  const int64_t length = header_length(file());
  std::string json(static_cast<size_t>(length), '\0');
  file().read(8, std::as_writable_bytes(std::span(json)));
  Header header = parse_safetensors_header(name, json);
  set_data_start(8 + length);
  set_metadata(std::move(header.metadata));
  for (const HeaderEntry& entry : header.entries) check_size(name, entry);
  // Stable: empty tensors at one place keep the header's order, which a record's digest is over.
  std::ranges::stable_sort(header.entries, {}, [](const HeaderEntry& e) { return std::pair(e.begin, e.end); });
  check_layout(name, header.entries, data_start(), file().size());
  for (HeaderEntry& entry : header.entries)
    add({.name = std::move(entry.name), .desc = std::move(entry.desc), .offset = data_start() + entry.begin});
}

}  // namespace lh
