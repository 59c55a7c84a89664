// The writer: nothing takes the file's name before it has been read back through the strict reader.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "io/safetensors.h"
#include "io/stored_dtype.h"

namespace lh {
namespace {

using Entries = std::vector<std::pair<std::string, Desc>>;

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(Code::data, "a name or metadata text to be written is not UTF-8: {}",
         nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
}

void compare(const std::filesystem::path& temp, const std::filesystem::path& target, const Entries& tensors,
             const std::map<std::string, std::string>& metadata, const std::string& hash) {
  const Safetensors file(temp);
  const auto differs = [&](const std::string& what) {
    fail(Code::resource, "{}: read back after writing, {}. Memory or disk is faulty; the file was not put in place",
         target.string(), what);
  };
  if (file.metadata() != metadata) differs("the metadata differs");
  if (file.tensors().size() != tensors.size())
    differs(fmt::format("it has {} tensors, expected {}", file.tensors().size(), tensors.size()));
  for (const auto& [name, desc] : tensors) {
    const StoredTensor* found = file.find(name);
    if (found == nullptr || !(found->desc == desc)) differs(fmt::format("tensor \"{}\" is missing or differs", name));
  }
  const InputFile bytes(temp);
  std::vector<std::byte> buffer(4 << 20);
  Sha256 read_back;
  for (int64_t at = file.data_start(); at < bytes.size();) {
    const auto count = std::min<int64_t>(static_cast<int64_t>(buffer.size()), bytes.size() - at);
    const std::span chunk(buffer.data(), static_cast<size_t>(count));
    bytes.read(at, chunk);
    read_back.update(chunk);
    at += count;
  }
  if (read_back.hex() != hash) differs("the SHA-256 of its data differs");
}

}  // namespace

std::string safetensors_header(const Entries& tensors, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += fmt::format("{}:{},", quoted(key), quoted(value));
    json.back() = '}';
    json += ',';
  }
  std::set<std::string_view> names;
  int64_t offset = 0;
  for (const auto& [name, desc] : tensors) {
    if (name == "__metadata__" || !names.insert(name).second)
      fail(Code::internal, "tensor name \"{}\" is reserved or there twice", name);
    const int64_t end = checked_add(offset, desc.bytes());
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", quoted(name),
                        stored_dtype_name(desc.dtype), fmt::join(desc.shape.dims(), ","), offset, end);
    offset = end;
  }
  if (json.size() > 1) json.pop_back();
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(json.size()) > safetensors_header_limit)
    fail(Code::data, "the header to be written has {} bytes, the format allows {}", json.size(),
         safetensors_header_limit);
  const uint64_t length = json.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + json;
}

void stream_safetensors(const std::filesystem::path& path, const Entries& tensors,
                        const std::map<std::string, std::string>& metadata, const ProduceTensor& produce) {
  const std::string header = safetensors_header(tensors, metadata);
  auto total = static_cast<int64_t>(header.size());
  for (const auto& [name, desc] : tensors) total = checked_add(total, desc.bytes());
  Sha256 hash;
  std::string hex;
  const auto write = [&](OutputFile& out) {
    out.write(header);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t end = out.written() + tensors[i].second.bytes();
      produce(i, [&](std::span<const std::byte> bytes) {
        hash.update(bytes);
        out.write(bytes);
      });
      if (out.written() != end)
        fail(Code::internal, "{}: tensor \"{}\" came with {} bytes, expected {}", path.string(), tensors[i].first,
             out.written() - end + tensors[i].second.bytes(), tensors[i].second.bytes());
    }
    hex = hash.hex();
  };
  publish_file(path, total, write,
               [&](const std::filesystem::path& temp) { compare(temp, path, tensors, metadata, hex); });
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Entries entries;
  for (const TensorToWrite& tensor : tensors) entries.emplace_back(tensor.name, tensor.desc);
  stream_safetensors(path, entries, metadata, [&](size_t i, const WriteBytes& write) {
    write({static_cast<const std::byte*>(tensors[i].data), static_cast<size_t>(tensors[i].desc.bytes())});
  });
}

}  // namespace lh
