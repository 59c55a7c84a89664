// A model plugin that breaks the rules of the ABI in the way that LORA_TEST_MISTAKE names; written against the C
// headers alone, so that nothing stands between it and the host.
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "lora_host/lora_host.h"

namespace {

std::string mistake() {
  const char* name = std::getenv("LORA_TEST_MISTAKE");
  return name == nullptr ? "" : name;
}

// What a plugin must not keep.
const lh_host* the_host = nullptr;
const lh_model_ctx* kept_model = nullptr;
lh_graph* kept_graph = nullptr;

constexpr const char* checkpoint_yaml = R"(
components:
  denoiser: {config: name_or_path, prefixes: [""], marker: w.weight, folder: transformer, lora: {kohya: lora_unet_}}
)";
constexpr const char* recipe_yaml = R"(
family: mistakes
objective: flow
latents: {channels: 4, downscale: 8, multiple: 2}
inputs: {}
timestep: {type: uniform}
sampling: {sampler: euler, steps: 2, guidance: 1, schedule: {kind: flow, shift: 1}}
lora: {targets: ["w"]}
)";

void crash(const std::string& how) {
  volatile uintptr_t nowhere = 8;  // not null, for which sanitizers look themselves
  if (how == "crash_segv") *reinterpret_cast<volatile int*>(nowhere) = 1;
  if (how == "crash_abort") std::abort();
  if (how == "crash_fpe") std::raise(SIGFPE);
  if (how == "crash_ill") std::raise(SIGILL);
  if (how == "crash_bus") std::raise(SIGBUS);
  if (how == "crash_exit") std::exit(0);
}

lh_status init(const lh_host* host, const char*) {
  the_host = host;
  if (mistake() == "init_exit") std::_Exit(0);
  if (mistake() == "init_crash") std::raise(SIGKILL);
  if (mistake() == "init_chdir" && ::chdir("/") != 0) return LH_E_INTERNAL;
  if (mistake() == "init_umask") ::umask(0111);
  if (mistake() == "init_locale") std::setlocale(LC_ALL, "C.UTF-8");
  if (mistake() == "init_rounding") std::fesetround(FE_UPWARD);
  if (mistake() == "init_handler") std::signal(SIGTERM, SIG_IGN);
  return LH_OK;
}
void deinit() { the_host = nullptr; }

int32_t probe(const lh_model_ctx* model) {
  const std::string m = mistake();
  if (m == "probe_200") return 200;
  if (m == "probe_0") return 0;
  if (m == "probe_throws") throw std::runtime_error("thrown by probe");
  if (m == "probe_fails") return (void)the_host->api->fail(LH_E_INTERNAL, "probe went wrong"), 0;
  kept_model = model;
  return 100;
}

lh_status create(const lh_model_ctx* model, void** self) {
  const std::string m = mistake();
  const lh_host_api* api = model->api;
  lh_desc desc;
  const char* text = nullptr;
  if (m == "create_throws") throw std::out_of_range("map::at");
  if (m == "create_throws_int") throw 42;
  if (m == "create_silent") return LH_E_INTERNAL;
  if (m == "create_unknown_status") return 77;
  if (m == "create_fails") return api->fail(LH_E_INTERNAL, "it went wrong");
  if (m == "create_unsupported") return api->fail(LH_E_UNSUPPORTED, "cannot do this");
  if (m == "create_model") return api->fail(LH_E_MODEL, "w.weight is not mine");
  if (m == "create_setting") return api->fail(LH_E_SETTING, "variant 'x' is unknown");
  if (m == "create_null_fail") return api->fail(LH_E_INTERNAL, nullptr);
  if (m == "create_failure_of_the_host") return api->weight_find(model, "absent", &desc);
  if (m == "create_null_name") return api->weight_find(model, nullptr, &desc), LH_OK;
  if (m == "create_null_handle") return api->weight_find(nullptr, "w.weight", &desc), LH_OK;
  if (m == "create_probes_handle") return api->weight_find(kept_model, "w.weight", &desc), LH_OK;
  if (m == "create_thread") {
    std::thread([&] { (void)api->weight_count(model); }).join();
    return LH_OK;
  }
  if (m == "create_document") return api->document(model, "denoiser", "config.json", &text);
  if (m == "create_document_up") return api->document(model, nullptr, "../secret.json", &text);
  if (m.starts_with("crash_")) crash(m);
  *self = nullptr;
  return LH_OK;
}

void destroy(void*) {}

const char* recipe(void*) { return mistake() == "recipe_null" ? nullptr : recipe_yaml; }

const char* role(void*, uint32_t index) {
  const std::string m = mistake();
  if (m == "role_endless") return "denoiser";
  if (m == "role_throws") throw std::runtime_error("thrown by role");
  return index == 0 ? "denoiser" : nullptr;
}

lh_status build(void*, const lh_model_ctx* model, lh_graph* g, const char*, const lh_attr* sizes, uint32_t n_sizes) {
  const std::string m = mistake();
  const lh_host_api* api = g->api;
  lh_desc latents{LH_FLOAT, 4, {0, 0, 0, 4}};
  for (uint32_t i = 0; i < n_sizes; ++i) {
    const char* names[] = {"batch", "height", "width"};
    for (int axis = 0; axis < 3; ++axis)
      if (std::strcmp(sizes[i].name, names[axis]) == 0) latents.dims[axis] = sizes[i].v.i;
  }
  lh_value x = api->input(g, "latents", &latents), y{0};
  lh_desc desc;
  lh_attr attr{nullptr, LH_ATTR_STRING, 1, {}};
  if (m == "build_no_output") return LH_OK;
  if (m == "build_throws") throw std::runtime_error("thrown by build");
  if (m == "build_null_input") api->input(g, nullptr, &latents);
  if (m == "build_null_desc") api->input(g, "other", nullptr);
  if (m == "build_null_param") api->param(g, nullptr);
  if (m == "build_absent_param") api->param(g, "absent.weight");
  if (m == "build_null_constant") api->constant(g, &latents, nullptr);
  if (m == "build_null_op") api->op(g, nullptr, &x, 1, nullptr, 0, &y, 1);
  if (m == "build_null_inputs") api->op(g, "silu/1", nullptr, 1, nullptr, 0, &y, 1);
  if (m == "build_null_results") api->op(g, "silu/1", &x, 1, nullptr, 0, nullptr, 1);
  if (m == "build_null_attrs") api->op(g, "gelu/1", &x, 1, nullptr, 1, &y, 1);
  if (m == "build_null_attr_name") api->op(g, "gelu/1", &x, 1, &attr, 1, &y, 1);
  attr.name = "mode";
  if (m == "build_null_attr_text") api->op(g, "gelu/1", &x, 1, &attr, 1, &y, 1);
  if (m == "build_null_output") api->output(g, nullptr, x);
  if (m == "build_null_out") api->describe(g, x, nullptr);
  if (m == "build_unknown_op") api->op(g, "frobnicate/1", &x, 1, nullptr, 0, &y, 1);
  if (m == "build_wrong_shapes") {
    const lh_value in[] = {x, api->param(g, "w.weight")};
    api->op(g, "linear/1", in, 2, nullptr, 0, &y, 1);
  }
  if (m == "build_thread") std::thread([&] { api->output(g, "output", x); }).join();
  if (m == "build_null_handle") api->output(nullptr, "output", x);
  if (m == "build_kept_graph" && kept_graph != nullptr) api->output(kept_graph, "output", x);
  if (m == "build_other_model") api->weight_find(kept_model, "w.weight", &desc);
  if (m == "build_crash") crash("crash_segv");
  kept_graph = g;
  (void)model;
  api->output(g, "output", x);
  return LH_OK;
}

const void* factory(const char* id, uint32_t index) {
  const std::string m = mistake();
  static const char* const objectives[] = {"flow", nullptr};
  static const auto create_part = [](const lh_host*, const lh_attr*, uint32_t, void**) { return lh_status{LH_OK}; };
  if (std::strcmp(id, LH_SAMPLER_FACTORY) == 0 && m.starts_with("sampler_")) {
    static lh_sampler sampler;
    sampler = {};
    sampler.struct_size = sizeof sampler;
    sampler.id = "bad";
    sampler.objectives = objectives;
    sampler.create = create_part;
    sampler.destroy = destroy;
    if (m != "sampler_no_stages") sampler.stages = [](void*) -> uint32_t { return 1; };
    if (m == "sampler_space") sampler.space = 9;
    if (m == "sampler_short") sampler.struct_size -= 8;
    return index == 0 ? &sampler : nullptr;
  }
  if (std::strcmp(id, LH_SCHEDULE_FACTORY) == 0 && m.starts_with("schedule_")) {
    static lh_schedule schedule;
    schedule = {};
    schedule.struct_size = sizeof schedule;
    schedule.id = "bad";
    schedule.objectives = m == "schedule_no_objectives" ? nullptr : objectives;
    schedule.create = create_part;
    schedule.destroy = destroy;
    return index == 0 ? &schedule : nullptr;
  }
  if (std::strcmp(id, LH_MODEL_FACTORY) != 0) return nullptr;
  static lh_model models[2];
  for (lh_model& model : models)
    model = {sizeof(lh_model), "mistakes", checkpoint_yaml, probe, create, destroy, recipe, role, build};
  models[1].id = "second";
  if (m == "no_id") models[0].id = nullptr;
  if (m == "escape_id") models[0].id = "\x1b[31mred";
  if (m == "no_checkpoint") models[0].checkpoint = nullptr;
  if (m == "no_build") models[0].build = nullptr;
  if (m == "no_recipe") models[0].recipe = nullptr;
  if (m == "short") models[0].struct_size -= 8;
  if (m == "no_end") return &models[0];
  if (m == "two_models") return index < 2 ? &models[index] : nullptr;
  return index == 0 && m != "no_model" ? &models[0] : nullptr;
}

LH_ABI_NOTE(LH_TARGET_MINOR);

}  // namespace

extern "C" {
LH_EXPORT extern const lh_plugin_entry lh_plugin;
}
const lh_plugin_entry lh_plugin = {
    sizeof(lh_plugin_entry), LH_ABI_MAJOR, LH_TARGET_MINOR, "mistakes", "0", "MIT", init, deinit, factory};
