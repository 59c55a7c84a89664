// Adapters that are no plain pairs and start from a file of their own kind: each tensor is taken as it is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compile/adapters.h"
#include "io/lora_names.h"
#include "io/lora_read.h"

namespace lh {

class ExactStart {
 public:
  // What of the file cannot be continued is appended to `problems`. The file must outlive this object.
  ExactStart(const LoraFile& file, const LoraNameTable& names, const Adapters& adapters,
             std::vector<LoraProblem>& problems);
  void apply(const Adapters& adapters) const;
  size_t modules() const { return modules_; }

 private:
  const LoraFile& file_;
  std::map<size_t, const StoredTensor*> stored_;  // by number among Adapters::tensors
  size_t modules_ = 0;
};

}  // namespace lh
