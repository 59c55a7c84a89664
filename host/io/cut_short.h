// A file that ends before what it says it holds.
#pragma once

#include <string>

#include "core/error.h"

namespace lh {

// what() advises to download the file again, which is right for what came from elsewhere. Who reads files that this
// program wrote takes found() and gives advice of its own.
class CutShort : public Error {
 public:
  explicit CutShort(std::string found) : Error(Code::data, found + ": download it again"), found_(std::move(found)) {}
  const std::string& found() const { return found_; }

 private:
  std::string found_;
};

}  // namespace lh
