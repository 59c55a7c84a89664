// abi_layout: prints the layout of every struct of the ABI and the constants that cross it: lines of "struct size",
// "struct.field offset size" and "CONSTANT value".
//
// sdk/abi/<major>.<minor>.txt keeps what it printed when that minor number was released; a test compares. A field that
// is missing in the list below is a hole, or an end before the struct's, and ends the program with status 1.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "lora_host/lora_host.h"

namespace {

struct Field {
  const char* name;
  size_t offset, size, align;
};

bool print(const char* name, size_t size, size_t align, const std::vector<Field>& fields) {
  std::printf("%s %zu\n", name, size);
  size_t end = 0;
  bool whole = true;
  for (const Field& field : fields) {
    std::printf("%s.%s %zu %zu\n", name, field.name, field.offset, field.size);
    const size_t expected = (end + field.align - 1) / field.align * field.align;
    if (field.offset != expected)
      std::fprintf(stderr, "%s.%s is at %zu, expected %zu: a field before it is not listed\n", name, field.name,
                   field.offset, expected),
          whole = false;
    end = field.offset + field.size;
  }
  if ((end + align - 1) / align * align != size)
    std::fprintf(stderr, "%s ends at %zu, its size is %zu: a field is not listed\n", name, end, size), whole = false;
  return whole;
}

#define STRUCT(type, ...) print(#type, sizeof(type), alignof(type), {__VA_ARGS__})
#define FIELD(type, field) \
  { #field, offsetof(type, field), sizeof(type::field), alignof(decltype(type::field)) }

}  // namespace

int main() {
  bool whole = true;
#define F(field) FIELD(lh_host, field)
  whole &= STRUCT(lh_host, F(api));
#undef F
#define F(field) FIELD(lh_model_ctx, field)
  whole &= STRUCT(lh_model_ctx, F(api));
#undef F
#define F(field) FIELD(lh_graph, field)
  whole &= STRUCT(lh_graph, F(api));
#undef F
#define F(field) FIELD(lh_value, field)
  whole &= STRUCT(lh_value, F(id));
#undef F
#define F(field) FIELD(lh_desc, field)
  whole &= STRUCT(lh_desc, F(dtype), F(rank), F(dims));
#undef F
#define F(field) FIELD(lh_attr, field)
  whole &= STRUCT(lh_attr, F(name), F(type), F(count), F(v));
#undef F
#define F(field) FIELD(lh_host_api, field)
  whole &= STRUCT(lh_host_api, F(struct_size), F(abi_major), F(abi_minor), F(log), F(fail), F(failure), F(extension),
                  F(has_op), F(weight_count), F(weight_at), F(weight_find), F(weight_lower_bound), F(setting),
                  F(document), F(metadata), F(input), F(param), F(constant), F(op), F(output), F(scope), F(describe));
#undef F
#define F(field) FIELD(lh_model, field)
  whole &= STRUCT(lh_model, F(struct_size), F(id), F(checkpoint), F(probe), F(create), F(destroy), F(recipe), F(role),
                  F(build));
#undef F
#define F(field) FIELD(lh_option, field)
  whole &= STRUCT(lh_option, F(name), F(type), F(flags), F(count), F(otherwise), F(min), F(max), F(choices), F(help));
#undef F
#define F(field) FIELD(lh_parameter, field)
  whole &= STRUCT(lh_parameter, F(struct_size), F(role), F(name), F(module), F(rank), F(group), F(desc));
#undef F
#define F(field) FIELD(lh_state, field)
  whole &= STRUCT(lh_state, F(name), F(scope), F(initial), F(meaning), F(value), F(desc));
#undef F
#define F(field) FIELD(lh_optimizer, field)
  whole &=
      STRUCT(lh_optimizer, F(struct_size), F(id), F(names), F(revision), F(options), F(create), F(destroy), F(flags),
             F(passes), F(state), F(build_pass), F(build_between), F(build_evaluation), F(learning_rate));
#undef F
#define F(field) FIELD(lh_layer, field)
  whole &= STRUCT(lh_layer, F(struct_size), F(type), F(module), F(component), F(in), F(out), F(kernel), F(stride),
                  F(pad), F(groups), F(rank), F(alpha), F(dropout), F(rank_dropout));
#undef F
#define F(field) FIELD(lh_adapter_form, field)
  whole &= STRUCT(lh_adapter_form, F(struct_size), F(form), F(scale), F(rank), F(alpha), F(leave_alone), F(from_start));
#undef F
#define F(field) FIELD(lh_adapter_tensor, field)
  whole &= STRUCT(lh_adapter_tensor, F(struct_size), F(role), F(name), F(desc), F(initial), F(value));
#undef F
#define F(field) FIELD(lh_adapter, field)
  whole &= STRUCT(lh_adapter, F(struct_size), F(id), F(options), F(create), F(destroy), F(form), F(tensor),
                  F(build_output), F(build_weight), F(build_initial));
#undef F
#define F(field) FIELD(lh_levels, field)
  whole &= STRUCT(lh_levels, F(struct_size), F(steps), F(alpha), F(sigma), F(time), F(objective), F(space));
#undef F
#define F(field) FIELD(lh_sampler, field)
  whole &= STRUCT(lh_sampler, F(struct_size), F(id), F(aliases), F(objectives), F(space), F(options), F(create),
                  F(destroy), F(stages), F(carried), F(scalar), F(scalar_values), F(stage_sigma), F(build_stage));
#undef F
#define F(field) FIELD(lh_schedule_facts, field)
  whole &=
      STRUCT(lh_schedule_facts, F(struct_size), F(steps), F(objective), F(space), F(timesteps), F(trained_sigma),
             F(sigma_min), F(sigma_max), F(tokens), F(dynamic), F(shift), F(mu), F(shift_twice), F(spacing), F(offset));
#undef F
#define F(field) FIELD(lh_schedule_levels, field)
  whole &= STRUCT(lh_schedule_levels, F(struct_size), F(room), F(count), F(sigma), F(time), F(start));
#undef F
#define F(field) FIELD(lh_schedule, field)
  whole &= STRUCT(lh_schedule, F(struct_size), F(id), F(aliases), F(objectives), F(options), F(create), F(destroy),
                  F(levels));
#undef F
#define F(field) FIELD(lh_plugin_entry, field)
  whole &= STRUCT(lh_plugin_entry, F(struct_size), F(abi_major), F(abi_minor_needed), F(id), F(version), F(license),
                  F(init), F(deinit), F(factory));
#undef F
#define F(field) FIELD(lh_abi_note, field)
  whole &= STRUCT(lh_abi_note, F(owner_size), F(desc_size), F(type), F(owner), F(abi_major), F(abi_minor_needed));
#undef F
#define C(constant) std::printf(#constant " %lld\n", static_cast<long long>(constant))
  C(LH_OK), C(LH_E_INVALID), C(LH_E_UNSUPPORTED), C(LH_E_MODEL), C(LH_E_GRAPH), C(LH_E_INTERNAL), C(LH_E_SETTING);
  C(LH_F32), C(LH_F16), C(LH_BF16), C(LH_F8_E4M3), C(LH_F8_E5M2), C(LH_I32), C(LH_I64), C(LH_U8), C(LH_FLOAT);
  C(LH_OPTION_FLOAT), C(LH_OPTION_INT), C(LH_OPTION_BOOL), C(LH_OPTION_CHOICE), C(LH_OPTION_FLOATS);
  C(LH_OPTION_MIN), C(LH_OPTION_MAX), C(LH_OPTION_ABOVE), C(LH_OPTION_BELOW), C(LH_OPTION_NULLABLE);
  C(LH_ROLE_OTHER), C(LH_ROLE_DOWN), C(LH_ROLE_UP), C(LH_ROLE_WEIGHT), C(LH_STATE_OF_TENSOR), C(LH_STATE_OF_GROUP);
  C(LH_INITIAL_ZERO), C(LH_INITIAL_CONSTANT), C(LH_INITIAL_PARAMETER), C(LH_MEANING_OWN), C(LH_MEANING_AVERAGE);
  C(LH_MEANING_SQUARE_AVERAGE), C(LH_OPTIMIZER_ELEMENTWISE);
  C(LH_MAX_RANK), C(LH_ATTR_I64), C(LH_ATTR_F64), C(LH_ATTR_STRING), C(LH_ATTR_I64_LIST), C(LH_ATTR_F64_LIST);
  C(LH_LOG_DEBUG), C(LH_LOG_INFO), C(LH_LOG_WARNING), C(LH_LOG_ERROR), C(LH_SCOPE_CHECKPOINT);
  C(LH_LAYER_LINEAR), C(LH_LAYER_CONV2D), C(LH_FORM_PAIR), C(LH_FORM_OUTPUT), C(LH_FORM_WEIGHT);
  C(LH_INIT_ZERO), C(LH_INIT_CONSTANT), C(LH_INIT_UNIFORM), C(LH_INIT_NORMAL), C(LH_INIT_GRAPH), C(LH_INIT_SINGULAR),
      C(LH_INIT_QR);
  C(LH_SPACE_SIGMA), C(LH_SPACE_ALPHA), C(LH_SPACE_LOG_SNR), C(LH_SPACING_LEADING), C(LH_SPACING_TRAILING),
      C(LH_NOTE_TYPE);
  return whole ? 0 : 1;
}
