// Golden cases: generated weights and inputs, answers of independent implementations (tests/data/golden/README.md).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lh::golden {

struct Case {
  std::filesystem::path folder;
  nlohmann::json json;
  std::string name, seed;
  explicit Case(const std::filesystem::path& folder);

  // The tensor of a spec ({shape, offset, scale} or {shape, values}); integers where all values are whole ids.
  HostTensor tensor(const std::string& key, const nlohmann::json& spec) const;
  HostTensor input(const std::string& key) const;     // channels last, as channels_last has it
  HostTensor expected(const std::string& key) const;  // float32, as stored
  std::vector<std::string> expected_names() const;
};

// ||got - want|| / ||want||; the norm of got when want is all zero.
double relative_error(std::span<const float> got, std::span<const float> want);
using lh::nchw_to_nhwc;
using lh::nhwc_to_nchw;

// [B, C, H, W] images and [B, C, T, H, W] videos -> channels last, others as they are; and back.
HostTensor channels_last(const HostTensor& t);
HostTensor channels_first(const HostTensor& t);

}  // namespace lh::golden
