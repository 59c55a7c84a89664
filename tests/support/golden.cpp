#include "support/golden.h"

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "io/safetensors.h"
#include "io/synthetic.h"

namespace lh::golden {

Case::Case(const std::filesystem::path& path) : folder(path) {
  std::ifstream file(path / "case.json");
  if (!file) fail(Code::data, "{}: no case.json", path.string());
  json = nlohmann::json::parse(file);
  name = json.at("case");
  seed = json.at("seed");
}

HostTensor Case::tensor(const std::string& key, const nlohmann::json& spec) const {
  Shape shape(spec.at("shape").get<std::vector<int64_t>>());
  if (!spec.contains("values")) {
    HostTensor out(Desc{DType::f32, shape});
    generate(seed + "/" + key, spec.at("offset"), spec.at("scale"), out.as<float>());
    return out;
  }
  if (key.ends_with("input_ids") || key.ends_with("_mask"))
    return HostTensor::from_ints(shape, spec.at("values").get<std::vector<int32_t>>());
  std::vector<float> values;
  for (const auto& v : spec.at("values")) values.push_back(static_cast<float>(v.get<double>()));
  return HostTensor::from_floats(shape, values);
}

HostTensor Case::input(const std::string& key) const { return channels_last(tensor(key, json.at("inputs").at(key))); }

HostTensor Case::expected(const std::string& key) const {
  return Safetensors(folder / "expected.safetensors").read(key);
}

std::vector<std::string> Case::expected_names() const {
  std::vector<std::string> names;
  const Safetensors file(folder / "expected.safetensors");
  for (const StoredTensor& t : file.tensors()) names.push_back(t.name);
  return names;
}

// The rows of a video's frames below each other are an image.
HostTensor channels_last(const HostTensor& t) {
  const Shape s = t.desc.shape;
  if (s.rank() == 4) return nchw_to_nhwc(t);
  if (s.rank() != 5) return t;
  HostTensor out = t;
  out.desc.shape = {s[0], s[1], s[2] * s[3], s[4]};
  out = nchw_to_nhwc(out);
  out.desc.shape = {s[0], s[2], s[3], s[4], s[1]};
  return out;
}

HostTensor channels_first(const HostTensor& t) {
  const Shape s = t.desc.shape;
  if (s.rank() == 4) return nhwc_to_nchw(t);
  if (s.rank() != 5) return t;
  HostTensor out = t;
  out.desc.shape = {s[0], s[1] * s[2], s[3], s[4]};
  out = nhwc_to_nchw(out);
  out.desc.shape = {s[0], s[4], s[1], s[2], s[3]};
  return out;
}

double relative_error(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace lh::golden
