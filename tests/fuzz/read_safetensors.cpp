// What the reader makes of many files, for safetensors_oracle.py: on stdin the length (4 bytes, little-endian) and
// bytes of each, on stdout a line for each: "ok", and name, type, shape and SHA-256 of every tensor, or "no", and why.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "fuzz/fuzz.h"
#include "io/safetensors.h"

int main() {
  using namespace lh;
  const std::string all(std::istreambuf_iterator<char>(std::cin), {});
  fuzz::MemoryFile memory;
  for (size_t at = 0; at + 4 <= all.size();) {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, 4);
    nlohmann::json answer = nlohmann::json::array();
    try {
      const Safetensors file(memory.holding(fuzz::bytes_of(std::string_view(all).substr(at + 4, length))));
      answer.push_back("ok");
      for (const StoredTensor& t : file.tensors()) {
        Sha256 hash;
        answer.push_back({t.name, stored_dtype_name(t.desc.dtype),
                          std::vector<int64_t>(t.desc.shape.dims().begin(), t.desc.shape.dims().end()),
                          hash.update(file.read(t.name).data).hex()});
      }
    } catch (const Error& error) {
      answer = {"no", error.what()};
    }
    std::printf("%s\n", answer.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
    at += 4 + size_t{length};
  }
}
