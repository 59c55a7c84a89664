// The generator of docs/synthetic.md: a hash of the name and the element's number, no state, the same everywhere.
#include "io/synthetic.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "core/error.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/stored_dtype.h"

namespace lh {
namespace {

constexpr int64_t key_list_limit = 64 << 20;
constexpr int64_t chunk = 8 << 20;  // elements

// The same for values spread evenly over offset +- scale (docs/synthetic.md).
struct Law {
  double offset = 0, scale = 0;
};

Law law_of(const std::string& name, const Shape& shape) {
  if (shape.rank() >= 2) {
    const auto fan_in = static_cast<double>(std::max<int64_t>(1, shape.with(0, 1).numel()));
    return {0.0, std::sqrt(3.0) / std::sqrt(fan_in)};
  }
  return weight_law(name, shape).offset != 0 ? Law{1.0, 0.1} : Law{0.0, 0.02};
}

void generate_chunk(const std::string& name, const Desc& desc, int64_t first, std::span<std::byte> out) {
  const int64_t count = static_cast<int64_t>(out.size()) / dtype_size(desc.dtype);
  if (!is_float(desc.dtype)) {  // position_ids and the like: 0, 1, 2, ... along the last axis
    const int64_t row = desc.shape.rank() == 0 ? 1 : desc.shape[desc.shape.rank() - 1];
    std::vector<int64_t> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = (first + i) % row;
    return convert(DType::i64, values.data(), desc.dtype, out.data(), count);
  }
  const auto [offset, scale] = law_of(name.substr(name.find('/') + 1), desc.shape);
  std::vector<float> values(static_cast<size_t>(count));
  generate(name, offset, scale, values, first);
  convert(DType::f32, values.data(), desc.dtype, out.data(), count);
}

void produce(const std::string& name, const Desc& desc, const WriteBytes& write) {
  const int64_t size = dtype_size(desc.dtype), total = desc.shape.numel();
  const int64_t workers = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 32);
  std::vector<std::byte> buffer;
  for (int64_t first = 0; first < total; first += chunk) {
    const int64_t count = std::min(chunk, total - first), part = (count + workers - 1) / workers;
    buffer.resize(static_cast<size_t>(count * size));
    std::vector<std::jthread> threads;
    for (int64_t at = 0; at < count; at += part) {
      const std::span slice(buffer.data() + at * size, static_cast<size_t>(std::min(part, count - at) * size));
      if (count < 1 << 16)
        generate_chunk(name, desc, first + at, slice);
      else
        threads.emplace_back([&name, &desc, begin = first + at, slice] { generate_chunk(name, desc, begin, slice); });
    }
    threads.clear();  // joins
    write(buffer);
  }
}

DType dtype_named(const std::string& path, const std::string& tensor, const std::string& text) {
  for (const StoredDType& known : stored_dtypes)
    if (known.name == text) return known.dtype;
  fail(Code::data, "{}: tensor \"{}\" has the unknown dtype {}", path, tensor, text);
}

std::vector<std::pair<std::string, Desc>> read_key_list(const std::filesystem::path& path) {
  const auto json = nlohmann::ordered_json::parse(read_text(path, key_list_limit), nullptr, false);
  const std::string file = path.string();
  if (!json.is_object() || !json.contains("tensors") || !json["tensors"].is_object())
    fail(Code::data, "{}: expected JSON {{\"tensors\": {{name: [dtype, shape]}}}}", file);
  std::vector<std::pair<std::string, Desc>> tensors;
  for (const auto& [name, entry] : json["tensors"].items()) {
    const bool pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_array() &&
                      std::ranges::all_of(entry[1], [](const auto& d) { return d.is_number_unsigned(); });
    if (!pair) fail(Code::data, "{}: tensor \"{}\" is {}, expected [dtype, shape]", file, name, entry.dump());
    const Shape shape(entry[1].template get<std::vector<int64_t>>());
    try {
      (void)shape.numel();
    } catch (const Error& e) {
      fail(Code::data, "{}: tensor \"{}\": {}", file, name, e.what());
    }
    tensors.emplace_back(name, Desc{dtype_named(file, name, entry[0].template get<std::string>()), shape});
  }
  return tensors;
}

}  // namespace

uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// Unit gain for matrices, about one for norms, small biases.
WeightLaw weight_law(std::string_view name, const Shape& shape) {
  if (shape.rank() >= 2) {
    const auto fan_in = static_cast<double>(std::max<int64_t>(1, shape.with(0, 1).numel()));
    return {0.0, 1 / std::sqrt(fan_in)};
  }
  const std::string_view last = name.substr(name.rfind('.') + 1);
  const bool norm = last == "scale" || last == "weight" || last.ends_with("_scale") || last.ends_with("_var") ||
                    last.starts_with("std-") || last.ends_with("_std") || shape.rank() == 0;
  return norm ? WeightLaw{1.0, 0.06} : WeightLaw{0.0, 0.012};
}

void make_hollow_checkpoint(const std::filesystem::path& key_list, const std::filesystem::path& out) {
  const auto tensors = read_key_list(key_list);
  const std::string header = safetensors_header(tensors, {{"format", "pt"}});
  auto total = static_cast<int64_t>(header.size());
  for (const auto& [name, desc] : tensors) total = checked_add(total, desc.bytes());
  publish_text(out, header);
  std::filesystem::resize_file(out, static_cast<uintmax_t>(total));
}

void generate(std::string_view name, double offset, double scale, std::span<float> out, int64_t first) {
  uint64_t counter = fnv1a64(name) + static_cast<uint64_t>(first) * 0x9E3779B97F4A7C15;
  for (float& value : out) {
    uint64_t h = counter;
    h ^= h >> 30;
    h *= 0xBF58476D1CE4E5B9;
    h ^= h >> 27;
    h *= 0x94D049BB133111EB;
    h ^= h >> 31;
    const double u = static_cast<double>(static_cast<int64_t>(h >> 40) - (1 << 23)) / (1 << 23);
    const double product = scale * u;
    value = static_cast<float>(offset + product);
    counter += 0x9E3779B97F4A7C15;
  }
}

void make_checkpoint(const std::filesystem::path& key_list, const std::filesystem::path& out, uint64_t seed) {
  const auto tensors = read_key_list(key_list);
  stream_safetensors(out, tensors, {{"format", "pt"}}, [&](size_t i, const WriteBytes& write) {
    produce(fmt::format("{}/{}", seed, tensors[i].first), tensors[i].second, write);
  });
}

}  // namespace lh
