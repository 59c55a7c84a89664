// The ABI between versions and between threads: the layout of a release, plugins and hosts that end where minor number
// 2 ended, and several models of one plugin at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "diffusion/sampler.h"
#include "diffusion/sampling_schedule.h"
#include "graph/print.h"
#include "plugin/call.h"
#include "plugin/model.h"
#include "plugin/optimizer.h"
#include "run/usual_rate.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::abi_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path built = fs::path(binary_dir()) / "lib" / "lora-host";

std::string printed_by(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

// sdk/abi/<major>.<minor>.txt: a released field, slot or constant stays what it was. 0.2.txt has no optimizers and
// samplers: their extension points of that release, "lh.optimizer/1" and "lh.sampler/1", are gone.
TEST(Abi, LayoutIsThatOfEveryRelease) {
  const std::string now = printed_by((fs::path(binary_dir()) / "bin" / "abi_layout").string());
  int32_t releases = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(fs::path(source_dir()) / "sdk" / "abi")) {
    ++releases;
    if (file.path().stem() == fmt::format("{}.{}", LH_ABI_MAJOR, LH_ABI_MINOR)) {
      EXPECT_EQ(get(file.path()), now) << "the layout is not that of " << file.path();
      continue;
    }
    std::istringstream lines(get(file.path()));
    for (std::string line; std::getline(lines, line);)
      if (line.find('.') != std::string::npos || line.starts_with("LH_")) {
        EXPECT_THAT(now, HasSubstr(line + "\n")) << file.path();
      }
  }
  EXPECT_EQ(releases, LH_ABI_MINOR - LH_ABI_OLDEST + 1);
}

// Bytes directly in front of a page that nobody may read.
class BeforeTheEnd {
 public:
  BeforeTheEnd(const void* bytes, size_t size) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    memory_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED || size > page_) throw std::runtime_error("no memory");
    start_ = static_cast<char*>(memory_) + page_ - size;
    std::memcpy(start_, bytes, size);
    mprotect(static_cast<char*>(memory_) + page_, page_, PROT_NONE);
  }
  ~BeforeTheEnd() { munmap(memory_, 2 * page_); }
  BeforeTheEnd(const BeforeTheEnd&) = delete;
  BeforeTheEnd& operator=(const BeforeTheEnd&) = delete;
  void* start() const { return start_; }

 private:
  size_t page_;
  void* memory_;
  void* start_;
};

// A copy of a struct that ends where its last field of 0.2 ends; struct_size says so.
#define CUT(type, last_field) (offsetof(type, last_field) + sizeof(type::last_field))

template <typename T>
class Cut : public BeforeTheEnd {
 public:
  Cut(T whole, size_t size) : BeforeTheEnd((whole.struct_size = static_cast<uint32_t>(size), &whole), size) {}
  const T* operator->() const { return get(); }
  const T* get() const { return static_cast<const T*>(start()); }
};

std::map<std::string, Desc> toy_weights() {
  const Checkpoint checkpoint(spec_of("flux"), {{"name_or_path", toy_folder() / "flux_toy.safetensors"}});
  return checkpoint.weights();
}

const Sizes sizes{{"batch", 1}, {"height", 4}, {"width", 4}, {"text_length", 8}};

TEST(Abi, ModelOfTheFirstMinorIsRead) {
  const Plugin plugin(built / "flux.so");
  const Cut<lh_model> cut(*plugin.models().at(0), CUT(lh_model, build));
  const Offered<lh_model> offered{cut.get(), &plugin.host()};
  const std::map<std::string, Desc> weights = toy_weights();
  EXPECT_EQ(probe(offered, weights, nullptr).confidence, 100);
  const PluginModel model(offered, weights);
  EXPECT_THAT(model.recipe(), HasSubstr("family: flux"));
  Graph graph(DType::f32);
  model.build(graph, "denoiser", sizes);
  EXPECT_TRUE(graph.outputs.contains("output"));
}

// The loader reads what a factory gives, and the entry itself, as far as struct_size says.
TEST(Abi, LoaderReadsStructsOfTheFirstMinor) {
  const fs::path library = fs::path(binary_dir()) / "lib" / "lora-host-test" / "cut_structs.so";
  const Plugin plugin(library);
  ASSERT_EQ(plugin.models().size(), 1u);
  ASSERT_EQ(plugin.optimizers().size(), 1u);
  ASSERT_EQ(plugin.samplers().size(), 1u);
  const Registry registry({}, {library});
  const Optimizer rule(registry, "cut_optimizer", {});
  EXPECT_EQ(usual_rate(registry, "cut_optimizer"), std::nullopt);
  std::vector<std::string> known;
  EXPECT_TRUE(rule.build_pass(0, {.shape = {4}}, known).outputs.contains("p"));
  ASSERT_EQ(plugin.schedules().size(), 1u);
  const Recipe recipe;
  const std::vector<Offered<lh_sampler>> samplers = registry.samplers();
  const Sampler sampler(samplers.at(0), {});
  const Schedule schedule(registry.schedules().at(0), {});
  const ScheduleFacts facts(recipe, sampler.space(), 2, 1);
  const SamplingSchedule levels(recipe, facts, schedule.levels(facts.get()));
  Device device(tested_device());
  SamplerRun run(device, sampler, Objective::flow, levels, {1, 2, 2, 4});
}

// A plugin runs in a host whose table ends with the last slot of 0.2: it looks before it uses a newer one.
TEST(Abi, PluginsRunWithTheTableOfTheFirstMinor) {
  const Cut<lh_host_api> table(host_api(), CUT(lh_host_api, describe));
  const TempDir folder;
  // A library is started once in a process, so this one is a copy.
  fs::copy_file(built / "flux.so", folder.path() / "flux_of_its_own.so");
  const Plugin plugin(folder.path() / "flux_of_its_own.so", *table.get());
  const Offered<lh_model> offered{plugin.models().at(0), &plugin.host()};
  const std::map<std::string, Desc> weights = toy_weights();
  const PluginModel model(offered, weights);
  Graph graph(DType::f32);
  model.build(graph, "denoiser", sizes);
  EXPECT_TRUE(graph.outputs.contains("output"));
}

std::string denoiser_of(const Model& model, int64_t side) {
  const Sizes sizes{{"batch", 1}, {"height", side}, {"width", side}, {"text_length", 8}};
  const Graph graph = model.build("denoiser", sizes, DType::f32);
  return print(graph) + (graph.inputs.contains("guidance") ? "guided" : "");
}

// Two checkpoints of one plugin are open at once, and two threads build their graphs, again and again.
TEST(Abi, SeveralModelsOfOnePluginAtOnce) {
  const TempDir folder;
  std::vector<Given> guided = tensors_of(toy_folder() / "flux_toy.safetensors");  // and a dev model of it
  for (const Given& t : std::vector<Given>(guided))
    if (t.name.starts_with("time_in.")) guided.push_back({"guidance_in." + t.name.substr(8), t.tensor});
  write_file(folder.path() / "dev.safetensors", guided);
  const Model schnell(built_plugins(), {.name_or_path = toy_folder() / "flux_toy.safetensors"}, "flux");
  const Model dev(built_plugins(), {.name_or_path = folder.path() / "dev.safetensors"}, "flux");
  EXPECT_NE(dev.recipe().variant, schnell.recipe().variant);
  const std::string want_dev = denoiser_of(dev, 4), want_schnell = denoiser_of(schnell, 6);
  EXPECT_NE(want_dev.find("guided"), std::string::npos);
  EXPECT_EQ(want_schnell.find("guided"), std::string::npos);
  int32_t wrong = 0;
  {
    const auto work = [&](const Model& model, int64_t side, const std::string& want, int32_t& bad) {
      for (int i = 0; i < 20; ++i) bad += denoiser_of(model, side) != want;
    };
    int32_t bad[3] = {};
    std::jthread one([&] { work(dev, 4, want_dev, bad[0]); });
    std::jthread two([&] { work(schnell, 6, want_schnell, bad[1]); });
    std::jthread three([&] { work(dev, 4, want_dev, bad[2]); });  // one model from two threads
    one.join(), two.join(), three.join();
    wrong = bad[0] + bad[1] + bad[2];
  }
  EXPECT_EQ(wrong, 0);
}

// Several Registries share a library: it is started once, and stays up until the last one goes.
TEST(Abi, RegistriesShareALibrary) {
  const Registry first({}, {});
  {
    const Registry second({}, {});
    EXPECT_EQ(&first.plugins()[0].host(), &second.plugins()[0].host());
  }
  EXPECT_NO_THROW(Optimizer(first, "adamw", {}));
}

}  // namespace
}  // namespace lh::test::abi_test
