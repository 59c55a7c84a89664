// Plugins that break the rules of the ABI: each mistake gets an error that names plugin and function, and is never
// taken for a bug of the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "plugin/plugin_model.h"
#include "support/io_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::plugin_mistakes_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path library = fs::path(binary_dir()) / "lib" / "lora-host-test" / "mistakes.so";

// What the plugin does wrong while this lives.
class Mistake {
 public:
  explicit Mistake(const char* name) { setenv("LORA_TEST_MISTAKE", name, 1); }
  ~Mistake() { unsetenv("LORA_TEST_MISTAKE"); }
  Mistake(const Mistake&) = delete;
  Mistake& operator=(const Mistake&) = delete;
};

struct Row {
  const char* mistake;
  std::string text;
  Code code = Code::plugin;
};

// Everything that is done with a model, in order.
void use_model() {
  const std::map<std::string, Desc> weights{{"w.weight", {DType::f32, {4, 8}}}}, other = weights;
  const Plugin plugin(library);
  const Offered<lh_model> offered{plugin.models().at(0), &plugin.host()};
  (void)probe(offered, other, nullptr);
  const PluginModel model(offered, weights);
  (void)model.recipe();
  for (int i = 0; i < 2; ++i) {
    Graph graph(DType::f32);
    model.build(graph, "denoiser", {{"batch", 1}, {"height", 2}, {"width", 2}});
  }
}

const Row rows[] = {
    // What it offers.
    {"no_id", "mistakes.so: lh.model/1 number 0 has no id"},
    {"no_checkpoint", "mistakes.so: lh.model/1 'mistakes' has no checkpoint"},
    {"no_build", "mistakes.so: lh.model/1 'mistakes' has no build"},
    {"no_recipe", "mistakes.so: lh.model/1 'mistakes' has no recipe"},
    {"short", "mistakes.so: lh.model/1 'mistakes' has struct_size 64, expected at least 72"},
    {"no_end", "mistakes.so: lh.model/1 does not end its list"},
    {"sampler_no_stages", "mistakes.so: lh.sampler/2 'bad' has no stages"},
    {"sampler_no_carried", "mistakes.so: lh.sampler/2 'bad' has no carried"},
    {"sampler_space", "mistakes.so: lh.sampler/2 'bad' has no space"},
    {"sampler_short", "mistakes.so: lh.sampler/2 'bad' has struct_size"},
    {"schedule_no_objectives", "mistakes.so: lh.schedule/1 'bad' has no objectives"},
    {"schedule_no_levels", "mistakes.so: lh.schedule/1 'bad' has no levels"},
    // Looking at weights.
    {"probe_200", "plugin 'mistakes', probe: gave 200, expected 0 to 100"},
    {"probe_throws", "plugin 'mistakes', probe: a C++ exception left the plugin: thrown by probe"},
    {"probe_fails", "plugin 'mistakes', probe: probe went wrong"},
    // Opening.
    {"create_throws", "plugin 'mistakes', create: a C++ exception left the plugin: map::at"},
    {"create_throws_int", "plugin 'mistakes', create: a C++ exception left the plugin: of an unknown type"},
    {"create_silent", "plugin 'mistakes', create: failed with status -5 and does not say why"},
    {"create_unknown_status", "plugin 'mistakes', create: gave the unknown status 77"},
    {"create_fails", "plugin 'mistakes', create: it went wrong"},
    {"create_unsupported", "plugin 'mistakes', create: cannot do this"},
    {"create_null_fail", "plugin 'mistakes', create: failed with status -5 and does not say why"},
    {"create_null_name", "plugin 'mistakes', create: weight_find: a NULL pointer for name or out"},
    {"create_document_up", "plugin 'mistakes', create: document: '../secret.json' is no name of a document"},
    {"role_endless", "plugin 'mistakes', role: the list of roles does not end"},
    {"role_throws", "plugin 'mistakes', role: a C++ exception left the plugin: thrown by role"},
    {"recipe_null", "plugin 'mistakes', recipe: gave NULL, expected the recipe's YAML"},
    // The user's files and settings.
    {"create_model", "w.weight is not mine", Code::data},
    {"create_failure_of_the_host", "the checkpoint has no tensor 'absent'", Code::data},
    {"create_setting", "variant 'x' is unknown", Code::config},
    {"create_document", "config.json: the checkpoint has no component 'denoiser'", Code::data},
    // Threads: handles in the wrong place.
    {"create_thread",
     "plugin 'mistakes', create: called weight_count on a thread that is in no callback with this "
     "lh_model_ctx (abi.h, Threads)"},
    {"create_null_handle", "plugin 'mistakes', create: called weight_find on a thread that is in no callback"},
    {"create_probes_handle", "plugin 'mistakes', create: called weight_find on a thread that is in no callback"},
    {"build_other_model", "plugin 'mistakes', build of role denoiser: called weight_find on a thread that is in no"},
    {"build_thread",
     "plugin 'mistakes', build of role denoiser: called output on a thread that is in no callback with "
     "this lh_graph (abi.h, Threads)"},
    {"build_null_handle",
     "plugin 'mistakes', build of role denoiser: called output on a thread that is in no callback"},
    {"build_kept_graph", "plugin 'mistakes', build of role denoiser: called output on a thread that is in no callback"},
    // Building.
    {"build_throws", "plugin 'mistakes', build of role denoiser: a C++ exception left the plugin: thrown by build"},
    {"build_null_input", "plugin 'mistakes', build of role denoiser: input: a NULL pointer for name"},
    {"build_null_desc", "plugin 'mistakes', build of role denoiser: input: a NULL pointer for desc"},
    {"build_null_param", "plugin 'mistakes', build of role denoiser: param: a NULL pointer for name"},
    {"build_absent_param", "plugin 'mistakes', build of role denoiser: the checkpoint has no tensor 'absent.weight'",
     Code::data},
    {"build_null_constant", "plugin 'mistakes', build of role denoiser: constant: a NULL pointer for data"},
    {"build_null_op", "plugin 'mistakes', build of role denoiser: op: a NULL pointer for its name"},
    {"build_null_inputs", "plugin 'mistakes', build of role denoiser: silu/1: a NULL pointer for its inputs"},
    {"build_null_results", "plugin 'mistakes', build of role denoiser: silu/1: a NULL pointer for its results"},
    {"build_null_attrs", "plugin 'mistakes', build of role denoiser: op: a NULL pointer for attributes"},
    {"build_null_attr_name",
     "plugin 'mistakes', build of role denoiser: op: a NULL pointer for the name of an attribute"},
    {"build_null_attr_text", "plugin 'mistakes', build of role denoiser: op: a NULL pointer for mode"},
    {"build_null_output", "plugin 'mistakes', build of role denoiser: output: a NULL pointer for name"},
    {"build_null_out", "plugin 'mistakes', build of role denoiser: describe: a NULL pointer for out"},
    {"build_unknown_op", "plugin 'mistakes', build of role denoiser: unknown op 'frobnicate/1'"},
    {"build_wrong_shapes", "plugin 'mistakes', build of role denoiser: linear/1"},
};

TEST(PluginMistakes, AreNamed) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.mistake);
    const Mistake mistake(row.mistake);
    try {
      use_model();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(row.text));
      EXPECT_EQ(error.code(), row.code) << error.what();
    }
  }
  EXPECT_NO_THROW(use_model());
}

// `plugin: ./mistakes.so` means its only model.
TEST(PluginMistakes, AFileIsAskedForByItsModel) {
  const auto id = [](const char* what) -> std::string {
    const Mistake mistake(what);
    try {
      return Registry({}, {library.string()}).model_id(library.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::plugin);
      return error.what();
    }
  };
  EXPECT_EQ(id(""), "mistakes");
  EXPECT_THAT(id("two_models"),
              HasSubstr("mistakes.so: this plugin offers several models: mistakes, second. Say which"));
  EXPECT_THAT(id("no_model"), HasSubstr("mistakes.so: this plugin offers no model"));
  EXPECT_EQ(Registry({}, {}).model_id("flux"), "flux");
  EXPECT_THROW(Registry({}, {"./absent.so"}), Error);
}

// A crash inside a plugin ends the program with its name and the call; outside of one nothing changes.
class PluginCrash : public ::testing::Test {
 protected:
  HostResult inspect(const std::string& mistake) {
    const fs::path file = folder_.path() / "model.safetensors";
    write_file(file, {{"w.weight", counting({4, 4})}});
    HostOptions options;
    options.environment = {{"LORA_TEST_MISTAKE", mistake}};
    const fs::path plugins = folder_.path() / "plugins";
    fs::create_directories(plugins);
    if (!fs::exists(plugins / "mistakes.so")) fs::create_symlink(library, plugins / "mistakes.so");
    return run_host({"--plugin-dir", plugins.string(), "inspect", file.string()}, options);
  }
  TempDir folder_;
};

TEST_F(PluginCrash, NamesThePluginAndTheCall) {
  const std::pair<const char*, const char*> signals[] = {{"crash_segv", "SIGSEGV (an invalid memory access)"},
                                                         {"crash_bus", "SIGBUS"},
                                                         {"crash_fpe", "SIGFPE"},
                                                         {"crash_ill", "SIGILL"},
                                                         {"crash_abort", "SIGABRT"}};
  for (const auto& [mistake, words] : signals) {
    const HostResult result = inspect(mistake);
    EXPECT_EQ(result.code, 6) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("lora-host: error: plugin 'mistakes', create: crashed with"), HasSubstr(words)));
  }
  const HostResult result = inspect("crash_exit");
  EXPECT_EQ(result.code, 6) << result.output;
  EXPECT_THAT(result.output, HasSubstr("lora-host: error: plugin 'mistakes', create: called exit()"));
}

TEST_F(PluginCrash, MistakesEndWithSix) {
  for (const char* mistake : {"create_throws", "recipe_null", "role_endless", "no_build"}) {
    const HostResult result = inspect(mistake);
    EXPECT_EQ(result.code, 6) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("mistakes"), Not(HasSubstr("internal"))));
  }
}

}  // namespace
}  // namespace lh::test::plugin_mistakes_test
