// Builder: values, attributes and the one call that adds an op. ops.gen.hpp puts a typed method per op on top of it.
#pragma once

#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lora_host/lora_host.h"

namespace lora_host {

// What a callback throws to fail with a status; the border turns it into api->fail (border.hpp).
class Failure : public std::runtime_error {
 public:
  Failure(lh_status code, const std::string& text) : std::runtime_error(text), code_(code) {}
  lh_status code() const { return code_; }

 private:
  lh_status code_;
};

struct Value {
  lh_value handle{0};
  explicit operator bool() const { return handle.id != 0; }
};

// A borrowed list for arguments: braces, a vector or a span.
template <typename T>
class View {
 public:
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"  // views are arguments: the braces outlive the call
#endif
  View(std::initializer_list<T> items) : data_(items.begin()), size_(items.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  View(const std::vector<T>& items) : data_(items.data()), size_(items.size()) {}
  View(std::span<const T> items) : data_(items.data()), size_(items.size()) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const T* data_;
  size_t size_;
};

using Integers = View<int64_t>;
using Values = View<Value>;

// Makers of attributes; names and lists must outlive the call they are given to.
namespace attr {

inline lh_attr integer(const char* name, int64_t value) {
  lh_attr out{name, LH_ATTR_I64, 1, {}};
  out.v.i = value;
  return out;
}
inline lh_attr real(const char* name, double value) {
  lh_attr out{name, LH_ATTR_F64, 1, {}};
  out.v.f = value;
  return out;
}
inline lh_attr text(const char* name, const char* value) {
  lh_attr out{name, LH_ATTR_STRING, 1, {}};
  out.v.s = value;
  return out;
}
inline lh_attr integers(const char* name, const Integers& values) {
  lh_attr out{name, LH_ATTR_I64_LIST, static_cast<uint32_t>(values.size()), {}};
  out.v.is = values.data();
  return out;
}

}  // namespace attr

class Builder {
 public:
  explicit Builder(lh_graph* graph) : graph_(graph) {}

  const lh_host_api& api() const { return *graph_->api; }
  lh_graph* graph() const { return graph_; }

  // Adds an op by its full name. After an error all values are absent and the graph keeps the first message.
  std::vector<Value> emit(const char* op, Values inputs, std::initializer_list<lh_attr> attrs, size_t outputs) {
    std::vector<lh_value> in, out(outputs);
    in.reserve(inputs.size());
    for (Value value : inputs) in.push_back(value.handle);
    std::vector<Value> values(outputs);
    lh_status status = api().op(graph_, op, in.data(), static_cast<uint32_t>(in.size()), attrs.begin(),
                                static_cast<uint32_t>(attrs.size()), out.data(), static_cast<uint32_t>(outputs));
    for (size_t i = 0; i < outputs && status == LH_OK; ++i) values[i].handle = out[i];
    return values;
  }

 private:
  lh_graph* graph_;
};

}  // namespace lora_host
