// What foreign code does to a process is done to a child.
#include "core/apart.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cfenv>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <map>
#include <new>

#include "core/error.h"
#include "plugin/loader.h"
#include "plugin/recognise.h"
#include "plugin/trial.h"
#include "support/io_files.h"
#include "support/log.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::apart_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string error_in_child(const std::function<void()>& body, double seconds = 20) {
  return error_of([&] {
    run_apart("mine.so", seconds, [&] {
      body();
      return std::string();
    });
  });
}

TEST(Apart, GivesWhatTheBodyGives) {
  const std::string large(200000, 'x');
  EXPECT_EQ(run_apart("mine.so", 20, [&] { return large; }), large);
  int here = 1;
  run_apart("mine.so", 20, [&] { return std::to_string(++here); });
  EXPECT_EQ(here, 1);
  try {
    run_apart("mine.so", 20, []() -> std::string { fail(Code::data, "the weights do not fit"); });
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::data);
    EXPECT_STREQ(e.what(), "the weights do not fit");
  }
}

TEST(Apart, NamesWhatWentWrong) {
  struct Row {
    std::function<void()> body;
    const char* error;
  };
  for (const Row& row : {
         Row{[] { std::_Exit(0); }, "mine.so: ended the process (exit 0)"},
             Row{[] { ::raise(SIGKILL); }, "mine.so: crashed with signal 9"},
             Row{[] { throw std::runtime_error("thrown"); }, "mine.so: thrown"},
             Row{[] { (void)!::chdir("/"); }, "mine.so: changed the current folder"},
             Row{[] { ::umask(0111); }, "mine.so: changed the umask"},
             Row{[] { std::setlocale(LC_ALL, "C.UTF-8"); }, "mine.so: changed the locale"},
             Row{[] { std::fesetround(FE_UPWARD); }, "how floating-point numbers are rounded"},
#if defined(__x86_64__)
             Row{[] { _mm_setcsr(_mm_getcsr() | 0x8000); }, "how floating-point numbers are computed"},
#endif
             Row {
           [] { ::signal(SIGTERM, SIG_IGN); }, "mine.so: changed a signal handler"
         }
       })
    EXPECT_THAT(error_in_child(row.body), HasSubstr(row.error));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_in_child([] { ::pause(); }, 0.2), HasSubstr("did not come to an end within 0.2 seconds"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(EachApart, GivesWhatEachTaskGives) {
  const auto answers = each_apart(100, 3, 20, [](size_t i) { return std::string(i * 1000, static_cast<char>(i)); });
  ASSERT_EQ(answers.size(), 100u);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].failure, "");
    EXPECT_EQ(answers[i].text, std::string(i * 1000, static_cast<char>(i)));
  }
  EXPECT_TRUE(each_apart(0, 3, 20, [](size_t) { return std::string(); }).empty());
}

// With fewer children than tasks, so that what comes after a bad one is done by the child in its place.
TEST(EachApart, OneThatEndsBadlyCostsNoOther) {
  const std::map<size_t, std::pair<std::function<void()>, std::string>> bad{
      {0, {[] { ::raise(SIGSEGV); }, "crashed with signal 11 (Segmentation fault)"}},
      {3, {[] { throw std::runtime_error("thrown"); }, "thrown"}},
      {4, {[] { ::pause(); }, "did not come to an end within 0.5 seconds"}},
      {5, {[] { std::_Exit(7); }, "ended the process (exit 7), which is not its own"}},
      {6, {[] { throw std::bad_alloc(); }, "there is no memory left for it"}},
      {9, {[] { std::abort(); }, "crashed with signal 6 (Aborted)"}}};
  for (const size_t children : {1, 2, 20}) {
    const auto answers = each_apart(10, children, 0.5, [&](size_t i) {
      if (const auto found = bad.find(i); found != bad.end()) found->second.first();
      return std::to_string(i);
    });
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto found = bad.find(i);
      EXPECT_EQ(answers[i].failure, found == bad.end() ? "" : found->second.second) << children;
      EXPECT_EQ(answers[i].text, found == bad.end() ? std::to_string(i) : "") << children;
    }
  }
}

// A folder of plugins with one that does the worst: it is named, and nothing of it happens here.
TEST(Apart, PluginsAreTriedInAChild) {
  const TempDir dir;
  ::setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  const fs::path plugins = dir / "plugins", mistakes = plugins / "mistakes.so";
  fs::create_directory(plugins);
  ASSERT_EQ(::mkfifo((plugins / "pipe.so").c_str(), 0600), 0);
  const auto load = [&] { return error_of([&] { load_plugins({{plugins, true}}); }); };
  EXPECT_THAT(load(), HasSubstr("pipe.so: is no regular file"));
  fs::remove(plugins / "pipe.so");
  fs::copy_file(fs::path(binary_dir()) / "lib/lora-host-test/mistakes.so", mistakes);
  for (const auto& [mistake, error] : {std::pair{"init_exit", "mistakes.so: ended the process (exit 0)"},
                                       {"init_chdir", "mistakes.so: changed the current folder"},
                                       {"init_umask", "mistakes.so: changed the umask"},
                                       {"init_locale", "mistakes.so: changed the locale"},
                                       {"init_rounding", "mistakes.so: changed how floating-point numbers are rounded"},
                                       {"init_handler", "mistakes.so: changed a signal handler"},
                                       {"init_crash", "crashed with"},
                                       {"no_id", "lh.model/1 number 0 has no id"},
                                       {"escape_id", "has an id with characters that cannot be printed"}}) {
    ::setenv("LORA_TEST_MISTAKE", mistake, 1);
    EXPECT_THAT(load(), HasSubstr(error));
  }
  // One that nobody asked for does not end a command.
  ::setenv("LORA_TEST_MISTAKE", "init_crash", 1);
  EXPECT_EQ(load_plugins({{plugins, false}}).size(), 0u);
  EXPECT_THAT(take_warnings(), testing::ElementsAre(AllOf(HasSubstr("left out"), HasSubstr("crashed with"))));
  ::unsetenv("LORA_TEST_MISTAKE");
  EXPECT_EQ(load(), "");
  EXPECT_TRUE(fs::exists(dir / "lora-host/plugins" / (content_hash(mistakes) + ".safetensors")));
  ::unsetenv("XDG_CACHE_HOME");
}

// Parts build once in the child: one that crashes there is named with its call, and one that tells an error is left for
// the one who uses it.
TEST(PluginTrial, PartsBuildOnceInAChild) {
  const TempDir dir;
  ::setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  const fs::path plugins = dir / "plugins", rules = plugins / "optimizer_mistakes.so";
  fs::create_directory(plugins);
  fs::copy_file(fs::path(binary_dir()) / "lib/lora-host-test/optimizer_mistakes.so", rules);
  const auto load = [&] { return error_of([&] { load_plugins({{plugins, true}}); }); };
  for (const auto& [mistake, error] :
       {std::pair{"crash", sanitized ? "ended the process (exit 1)" : "optimizer_mistakes.so: crashed with signal 11"},
        {"abort", "optimizer_mistakes.so: crashed with signal 6"},
        {"exit", "ended the process (exit 0)"},
        {"umask", "changed the umask"}}) {
    ::setenv("LORA_TEST_MISTAKE", mistake, 1);
    EXPECT_THAT(load(), HasSubstr(error));
  }
  ::setenv("LORA_TEST_MISTAKE", "state_name", 1);
  EXPECT_EQ(load(), "");
  ::unsetenv("LORA_TEST_MISTAKE");
  ::unsetenv("XDG_CACHE_HOME");
}

// What passed is not run again, is not loaded before it is needed, and a changed list is made anew.
TEST(PluginTrial, OnlyWhatIsNeededIsLoaded) {
  const TempDir dir;
  ::setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  const fs::path built = fs::path(binary_dir()) / "lib/lora-host";
  const auto loaded = [](const Registry& registry) {
    std::string names;
    for (const PluginFile& file : registry.plugins())
      if (file.loaded()) names += file.offers().id + " ";
    return names;
  };
  for (const bool again : {false, true}) {
    const Registry registry({built}, {});
    EXPECT_GE(registry.model_keys().size(), 5u);
    EXPECT_EQ(loaded(registry), "") << again;
    (void)registry.optimizer("adamw");
    EXPECT_EQ(loaded(registry), "optim ");
    const fs::path toy = toy_folder() / "flux_toy.safetensors";
    (void)registry.adapter("lora");
    EXPECT_EQ(loaded(registry), "adapters optim ");
    EXPECT_EQ(ask_plugins(registry, toy)[0].id(), "flux");
    EXPECT_EQ(loaded(registry).find("sdxl"), std::string::npos) << loaded(registry);
  }
  for (const auto& entry : fs::directory_iterator(dir / "lora-host/plugins")) put(entry.path(), "damaged");
  EXPECT_GE(Registry({built}, {}).listed_models().size(), 5u);
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace lh::test::apart_test
