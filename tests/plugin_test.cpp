// Plugins: the ABI note of crafted files, loading, what is exported, and errors at the border.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/dll/library_info.hpp>
#include <fstream>
#include <map>

#include "core/error.h"
#include "plugin/elf_note.h"
#include "plugin/loader.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path built = fs::path(LORA_BINARY_DIR) / "lib" / "lora-host";
const fs::path misbehaving = fs::path(LORA_BINARY_DIR) / "lib" / "lora-host-test";

// A host that knows weights by name and remembers what was said.
struct FakeHost {
  static inline std::vector<std::string> logged, failures;
  static inline std::map<std::string, std::vector<int64_t>> weights;

  static lh_desc desc_of(const std::vector<int64_t>& dims) {
    lh_desc desc{LH_BF16, static_cast<uint32_t>(dims.size()), {}};
    std::copy(dims.begin(), dims.end(), desc.dims);
    return desc;
  }
  static lh_host_api table() {
    lh_host_api api{};
    api.struct_size = sizeof api;
    api.abi_major = LH_ABI_MAJOR;
    api.abi_minor = LH_ABI_MINOR;
    api.log = [](const lh_host*, int32_t, const char* text) { logged.emplace_back(text); };
    api.fail = [](const lh_host*, lh_status code, const char* text) {
      failures.emplace_back(text);
      return code;
    };
    api.extension = [](const lh_host*, const char*) -> const void* { return nullptr; };
    api.weight_count = [](const lh_host*) -> uint64_t { return weights.size(); };
    api.weight_at = [](const lh_host*, uint64_t index, const char** name, lh_desc* out) -> lh_status {
      auto it = std::next(weights.begin(), static_cast<ptrdiff_t>(index));
      *name = it->first.c_str();
      *out = desc_of(it->second);
      return LH_OK;
    };
    api.weight_find = [](const lh_host*, const char* name, lh_desc* out) -> lh_status {
      auto it = weights.find(name);
      if (it == weights.end()) return LH_E_MODEL;
      *out = desc_of(it->second);
      return LH_OK;
    };
    api.setting = [](const lh_host*, const char*, const char**) -> lh_status { return LH_E_INVALID; };
    return api;
  }
};

const lh_host_api api = FakeHost::table();
lh_host* no_host(const std::string&) { return nullptr; }
lh_host* some_host(const std::string&) {
  static int place;
  return reinterpret_cast<lh_host*>(&place);
}

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeHost::logged.clear();
    FakeHost::failures.clear();
    FakeHost::weights.clear();
    fs::create_directories(dir_);
    std::ifstream file(built / "optim.so", std::ios::binary);
    image_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(image_.size(), 64u) << "optim.so is not built";
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path write(const std::string& bytes, const std::string& name = "crafted.so") {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }
  static std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::plugin);
      return error.what();
    }
    return "no error";
  }
  static std::string note_error(const fs::path& file) {
    return error_of([&] { read_abi_note(file); });
  }
  // The built plugin with another ABI in its note (owner, then two u16).
  std::string with_abi(uint16_t major, uint16_t minor) const {
    std::string image = image_;
    size_t at = image.find(std::string("lora-host\0\0\0", 12));
    EXPECT_NE(at, std::string::npos);
    std::memcpy(&image[at + 12], &major, 2);
    std::memcpy(&image[at + 14], &minor, 2);
    return image;
  }

  fs::path dir_ = fs::temp_directory_path() / ("lora_plugin_test_" + std::to_string(getpid()));
  std::string image_;
};

TEST_F(PluginTest, NoteOfABuiltPlugin) {
  AbiNote note = read_abi_note(built / "flux.so");
  EXPECT_EQ(note.major, LH_ABI_MAJOR);
  EXPECT_EQ(note.minor_needed, LH_ABI_MINOR);
}

TEST_F(PluginTest, FilesThatAreNoPlugins) {
  EXPECT_THAT(note_error(dir_ / "absent.so"), HasSubstr("cannot read"));
  EXPECT_THAT(note_error(write("")), HasSubstr("truncated"));
  EXPECT_THAT(note_error(write("a text file, long enough to be read")), HasSubstr("not an ELF shared library"));
  EXPECT_THAT(note_error(write(image_.substr(0, 40))), HasSubstr("truncated"));
  EXPECT_THAT(note_error(write(image_.substr(0, 200))), HasSubstr("truncated"));
  std::string renamed = image_;
  renamed[renamed.find("lora-host")] = 'X';
  EXPECT_THAT(note_error(write(renamed)), HasSubstr("no lora-host note"));
}

TEST_F(PluginTest, OtherMachines) {
  std::string image = image_;
  image[18] = static_cast<char>(243);  // e_machine: riscv
  image[19] = 0;
  EXPECT_THAT(note_error(write(image)), AllOf(HasSubstr("riscv"), HasSubstr("build the plugin on this machine")));
  image = image_;
  image[4] = 1;  // 32 bit
  EXPECT_THAT(note_error(write(image)), HasSubstr("another kind of machine"));
}

// Whatever a byte of the headers is changed to, reading ends with a note or an lh::Error.
TEST_F(PluginTest, DamagedHeaders) {
  fs::path path = write(image_);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  auto set = [&](size_t at, char value) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value).flush();
  };
  for (size_t at = 0; at < std::min<size_t>(image_.size(), 800); ++at) {
    for (char value : {'\x00', '\x7f', '\xff'}) {
      set(at, value);
      (void)note_error(path);
    }
    set(at, image_[at]);
  }
  EXPECT_EQ(read_abi_note(path).major, LH_ABI_MAJOR);
}

TEST_F(PluginTest, OtherAbiIsRefusedWithBothVersions) {
  std::string needed =
      fmt::format("needs plugin ABI {}.{}, this host has {}.{}", LH_ABI_MAJOR + 1, 0, LH_ABI_MAJOR, LH_ABI_MINOR);
  fs::path file = write(with_abi(LH_ABI_MAJOR + 1, 0));
  EXPECT_THAT(error_of([&] { Plugin(file, api, no_host); }), AllOf(HasSubstr(needed), HasSubstr("update lora-host")));
  file = write(with_abi(LH_ABI_MAJOR, LH_ABI_MINOR + 1));
  EXPECT_THAT(error_of([&] { Plugin(file, api, no_host); }), HasSubstr("crafted.so: needs plugin ABI"));
}

TEST_F(PluginTest, LoadsTheBuiltPlugins) {
  Plugins plugins = load_plugins({{built, true}}, api, some_host, {"flux", "optim", "samplers"});
  std::map<std::string, const Plugin*> by_id;
  for (const auto& plugin : plugins) by_id[plugin->entry().id] = plugin.get();
  ASSERT_TRUE(by_id.contains("flux") && by_id.contains("optim") && by_id.contains("samplers"));
  EXPECT_STREQ(by_id["flux"]->models().at(0)->id, "flux");
  EXPECT_TRUE(by_id["flux"]->optimizers().empty());
  EXPECT_EQ(by_id["optim"]->optimizers().size(), 2u);
  EXPECT_STREQ(by_id["samplers"]->samplers().at(0)->objectives[0], "flow");
  EXPECT_THAT(FakeHost::logged, ElementsAre());
}

TEST_F(PluginTest, ExportsOneSymbol) {
  for (const char* name : {"flux", "optim", "samplers"}) {
    boost::dll::library_info info(built / (std::string(name) + ".so"));
    EXPECT_THAT(info.symbols(), ElementsAre(LH_PLUGIN_SYMBOL)) << name;
  }
}

TEST_F(PluginTest, BrokenPluginsOfTheDefaultDirectoryAreWarnings) {
  fs::path file = write(with_abi(LH_ABI_MAJOR + 1, 0), "old.so");
  EXPECT_EQ(load_plugins({{dir_, false}}, api, some_host).size(), 0u);
  EXPECT_THAT(FakeHost::logged, ElementsAre(AllOf(HasSubstr("left out"), HasSubstr(file.string()))));
  EXPECT_THAT(error_of([&] { load_plugins({{dir_, false}}, api, some_host, {"old"}); }), HasSubstr("old.so"));
  EXPECT_THAT(error_of([&] { load_plugins({{dir_, true}}, api, some_host); }), HasSubstr("old.so"));
  EXPECT_EQ(load_plugins({{dir_ / "absent", false}}, api, some_host).size(), 0u);
  EXPECT_THAT(error_of([&] { load_plugins({{dir_ / "absent", true}}, api, some_host); }), HasSubstr("cannot list"));
}

TEST_F(PluginTest, FlushToZeroIsRefusedAndUndone) {
#if defined(__x86_64__)
  EXPECT_THAT(error_of([&] { Plugin(misbehaving / "flush_to_zero.so", api, some_host); }), HasSubstr("-ffast-math"));
  volatile float tiny = 1e-40f;
  EXPECT_NE(tiny * 0.5f, 0.0f);
#endif
}

TEST_F(PluginTest, InitThatFails) {
  std::string text = error_of([&] { Plugin(misbehaving / "refuses_init.so", api, some_host); });
  EXPECT_THAT(text, AllOf(HasSubstr("'refuses' 0 refused to start"), HasSubstr("-2")));
  EXPECT_THAT(FakeHost::failures, ElementsAre("not today"));
}

TEST_F(PluginTest, ExceptionsStayInside) {
  Plugin plugin(misbehaving / "throws.so", api, some_host);
  const lh_optimizer* rule = plugin.optimizers().at(0);
  void* self = nullptr;
  ASSERT_EQ(rule->create(plugin.host(), nullptr, 0, &self), LH_OK);
  lh_desc vector{LH_F32, 1, {4}}, matrix{LH_F32, 2, {4, 4}};
  EXPECT_EQ(rule->build_update(self, nullptr, &vector), LH_E_INTERNAL);
  EXPECT_EQ(rule->build_update(self, nullptr, &matrix), LH_E_INTERNAL);
  EXPECT_THAT(FakeHost::failures, ElementsAre("a vector", "unknown C++ exception in the plugin"));
  rule->destroy(self);
}

TEST_F(PluginTest, OptimizerOptionsAreChecked) {
  Plugin plugin(built / "optim.so", api, some_host);
  const lh_optimizer* adamw = plugin.optimizers().at(0);
  const double betas[] = {0.9, 1.5};
  lh_attr options[] = {{"betas", LH_ATTR_F64_LIST, 2, {}}};
  options[0].v.fs = betas;
  void* self = nullptr;
  EXPECT_EQ(adamw->create(plugin.host(), options, 1, &self), LH_E_INVALID);
  EXPECT_EQ(self, nullptr);
  EXPECT_THAT(FakeHost::failures, ElementsAre(HasSubstr("betas")));
}

TEST_F(PluginTest, ModelProbeAndItsErrors) {
  Plugin plugin(built / "flux.so", api, some_host);
  const lh_model* model = plugin.models().at(0);
  EXPECT_EQ(model->probe(plugin.host()), 0);
  auto& weights = FakeHost::weights;
  weights["img_in.weight"] = {256, 64};
  weights["double_blocks.0.img_attn.qkv.weight"] = {768, 256};
  weights["single_blocks.0.linear1.weight"] = {1792, 256};
  EXPECT_EQ(model->probe(plugin.host()), 100);
  void* self = nullptr;
  EXPECT_EQ(model->create(plugin.host(), &self), LH_E_MODEL);
  EXPECT_EQ(self, nullptr);
  weights["final_layer.linear.weight"] = {64, 256};
  weights["txt_in.weight"] = {128, 96};
  EXPECT_EQ(model->create(plugin.host(), &self), LH_E_MODEL);
  EXPECT_THAT(FakeHost::failures, ElementsAre("missing tensor final_layer.linear.weight [*, 256]",
                                              "txt_in.weight: expected shape [256, *], found [128, 96]"));
  weights["double_stream_modulation_img.lin.weight"] = {1, 1};
  EXPECT_EQ(model->probe(plugin.host()), 0);
}

}  // namespace
}  // namespace lh
