// What was chosen by time, said and taken.
#include "choice_lines.h"
#include "dispatch.h"
#include "lora_kernels_choices.h"

namespace {

void require_given(const char* what, const void* pointer, const char* name) {
  if (pointer == nullptr) throw lk::Error(LK_E_INVALID, std::string(what) + ": " + name + " is NULL");
}

}  // namespace

lk_status lk_choose_by_time(lk_context* context, int32_t on) {
  return lk::guarded(context, "choose_by_time",
                     [&] { lk::require_context(context, "choose_by_time").backend->choose_by_time(on != 0); });
}

lk_status lk_get_choices(lk_context* context, const char** out) {
  return lk::guarded(context, "get_choices", [&] {
    lk_context& known = lk::require_context(context, "get_choices");
    require_given("get_choices", out, "out");
    known.choices = known.backend->choices();
    *out = known.choices.c_str();
  });
}

lk_status lk_take_choices(lk_context* context, const char* lines) {
  return lk::guarded(context, "take_choices", [&] {
    lk::Backend& backend = *lk::require_context(context, "take_choices").backend;
    require_given("take_choices", lines, "lines");
    const bool whole = lk::each_choice(lines, [](const std::string&, const std::string&) {});
    if (!whole || !backend.take_choices(lines))
      throw lk::Error(LK_E_INVALID, "take_choices: lines: one is damaged, or is none of lk_get_choices");
  });
}
