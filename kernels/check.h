// Argument checks of the public functions. A failed check throws LK_E_INVALID with a text that names the operation,
// the argument, what was expected and what was found: "linear: y: expected shape [2, 3], found [2, 4]".
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backend.h"

namespace lk {

struct Arg {
  const char* name;
  const lk_tensor* tensor;
  bool in_lines = false;  // may have strides (lines.h)
};
#define LK_ARG(params, field) \
  lk::Arg { #field, &(params).field }
#define LK_LINES(params, field) \
  lk::Arg { #field, &(params).field, true }

using Shape = std::span<const int64_t>;

inline bool present(const lk_tensor& tensor) { return tensor.data != nullptr; }
inline Shape shape_of(const lk_tensor& tensor) { return {tensor.dims, static_cast<size_t>(tensor.rank)}; }
LK_API std::string shape_text(Shape shape);

// What a check says: a text, a number, a shape, or a function that makes a text. Every launch is checked, and none of
// its texts is made unless it is wrong.
template <typename What>
std::string text_of(const What& what) {
  if constexpr (std::is_invocable_v<const What&>)
    return what();
  else if constexpr (std::is_convertible_v<const What&, Shape>)
    return shape_text(what);
  else if constexpr (std::is_arithmetic_v<What> || std::is_enum_v<What>)
    return std::to_string(what);
  else
    return what;
}

std::vector<int64_t> with_last(const lk_tensor& tensor, int64_t size);  // its shape with the last axis replaced

class Check {
 public:
  explicit Check(const char* op) : op_(op) {}

  [[noreturn]] void fail(const char* name, const std::string& expected, const std::string& found) const;
  template <typename Expected, typename Found>
  void require(bool good, const char* name, const Expected& expected, const Found& found) const {
    if (!good) fail(name, text_of(expected), text_of(found));
  }

  // Each of these first requires the tensor to be there, of rank 0..8, every dimension at least 1, dense unless the
  // argument may lie in lines.
  void tensor(Arg arg) const;    // of any type but nf4, which `weight` alone allows
  void floating(Arg arg) const;  // f32, f16, bf16
  void values(Arg arg) const;    // also fp8
  // A weight in any type, of rank 1 at least, and the factors that multiply it: absent, f32 with one element or one for
  // each row; of nf4, which has rank 2, they must be there.
  void weight(Arg arg, Arg scale) const;
  void products(lk_products products, Arg weight) const;  // a kind there is, and one for a weight of that type
  void dtype(Arg arg, lk_dtype dtype) const;
  void number(Arg arg) const;                 // f32, f16, bf16 or i32
  void number_like(Arg arg, Arg like) const;  // i32 where `like` is, floating otherwise
  // `y` has the shape that a, b, ... have when they are repeated to fit each other, right-aligned.
  void broadcast(Arg y, std::initializer_list<Arg> inputs) const;
  void rank(Arg arg, int32_t lowest, int32_t highest) const;
  void shape(Arg arg, Shape expected) const;
  void shape(Arg arg, std::initializer_list<int64_t> expected) const {
    shape(arg, Shape(expected.begin(), expected.size()));
  }
  // Absent, or f32, f16 or bf16 of the shape.
  void optional(Arg arg, Shape expected) const;
  void optional(Arg arg, std::initializer_list<int64_t> expected) const {
    optional(arg, Shape(expected.begin(), expected.size()));
  }
  // Absent, or f32, f16 or bf16 with one row for every image of x [B, S, C]: [B, C] or [B, 1, C].
  void optional_per_image(Arg arg, const lk_tensor& x) const;
  // Tables of angles for x [B, S, H, D], whose D is even: f32, [S, D/2] or [B, S, D/2], or as wide as D.
  void angles(Arg x, Arg cos, Arg sin) const;
  void scalar_f32(Arg arg) const;                                      // f32, one element
  void separate(Arg output, std::initializer_list<Arg> inputs) const;  // absent ones are skipped
  void in_place_or_separate(Arg output, Arg input) const;  // the same memory, type and size, or no overlap at all
  void positive(const char* name, double value) const;     // finite and > 0
  void finite(const char* name, double value) const;

 private:
  void dimensions(Arg arg) const;  // those, and nothing about the type
  const char* op_;
};

}  // namespace lk
