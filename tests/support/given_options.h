// Options of a plugin's part as they stand in a configuration.
#pragma once

#include <string>

#include "config/load.h"

namespace lh::test {

// flow: "{betas: [0.9, 0.99], eps: null}", the value of train.optimizer_params in "c.yaml", line 1.
inline GivenOptions given_options(const std::string& flow) {
  return parse_config("train: {optimizer_params: " + flow + "}\n", "c.yaml", {.model = false, .datasets = false})
      .train.optimizer_params;
}

}  // namespace lh::test
