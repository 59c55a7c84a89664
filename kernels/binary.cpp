// lk_binary: y = a (kind) b with right-aligned broadcasting.
#include <algorithm>

#include "check.h"
#include "dispatch.h"

namespace {

void check_binary(const lk_binary_params& p) {
  const lk::Check check("binary");
  check.require(p.kind >= LK_ADD && p.kind <= LK_GREATER_EQUAL, "kind", "0 to 6", std::to_string(p.kind));
  check.floating(LK_ARG(p, a));
  check.floating(LK_ARG(p, b));
  const lk::Shape a = lk::shape_of(p.a), b = lk::shape_of(p.b);
  std::vector<int64_t> expected(std::max(a.size(), b.size()));
  for (size_t i = 0; i < expected.size(); ++i) {  // from the last axis
    const int64_t from_a = i < a.size() ? a[a.size() - 1 - i] : 1, from_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    check.require(from_a == from_b || from_a == 1 || from_b == 1, "b",
                  "a shape that broadcasts with " + lk::shape_text(a), lk::shape_text(b));
    expected[expected.size() - 1 - i] = std::max(from_a, from_b);
  }
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), expected);
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, a));
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, b));
}

}  // namespace

LK_DEFINE_OP(binary, lk_binary_params)
