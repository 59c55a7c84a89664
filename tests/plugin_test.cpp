// Plugins: the ABI note of crafted files, loading, what is exported, and errors at the border.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/dll/library_info.hpp>
#include <fstream>
#include <map>

#include "core/error.h"
#include "plugin/elf_note.h"
#include "plugin/optimizer.h"
#include "plugin/plugin_model.h"
#include "support/io_files.h"
#include "support/log.h"
#include "support/paths.h"

namespace lh::plugin_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path built = fs::path(test::binary_dir()) / "lib" / "lora-host";
const fs::path misbehaving = fs::path(test::binary_dir()) / "lib" / "lora-host-test";

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(built / "optim.so", std::ios::binary);
    image_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(image_.size(), 64u) << "optim.so is not built";
  }

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

  const test::TempDir temp_;
  const fs::path dir_ = temp_.path();
  std::string image_;
};

TEST_F(PluginTest, NoteOfABuiltPlugin) {
  AbiNote note = read_abi_note(built / "flux.so");
  EXPECT_EQ(note.major, LH_ABI_MAJOR);
  EXPECT_EQ(note.minor_needed, LH_TARGET_MINOR);
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
  std::string needed = fmt::format("needs plugin ABI {}.{}, this host has {}.{} to {}.{}", LH_ABI_MAJOR + 1, 0,
                                   LH_ABI_MAJOR, LH_ABI_OLDEST, LH_ABI_MAJOR, LH_ABI_MINOR);
  fs::path file = write(with_abi(LH_ABI_MAJOR + 1, 0));
  EXPECT_THAT(error_of([&] { Plugin one(file); }), AllOf(HasSubstr(needed), HasSubstr("update lora-host")));
  file = write(with_abi(LH_ABI_MAJOR, LH_ABI_MINOR + 1));
  EXPECT_THAT(error_of([&] { Plugin one(file); }), HasSubstr("crafted.so: needs plugin ABI"));
  file = write(with_abi(0, 1));
  EXPECT_THAT(
      error_of([&] { Plugin one(file); }),
      AllOf(HasSubstr("needs plugin ABI 0.1, this host has 0.2 to 0.3; rebuild the plugin with this host's SDK")));
}

TEST_F(PluginTest, LoadsTheBuiltPlugins) {
  Plugins plugins = load_plugins({{built, true}}, {"flux", "optim", "samplers", "schedules"});
  std::map<std::string, const Plugin*> by_id;
  for (const auto& plugin : plugins) by_id[plugin->entry().id] = &*plugin;
  ASSERT_TRUE(by_id.contains("flux") && by_id.contains("optim") && by_id.contains("samplers"));
  EXPECT_STREQ(by_id["flux"]->models().at(0)->id, "flux");
  EXPECT_TRUE(by_id["flux"]->optimizers().empty());
  EXPECT_EQ(by_id["optim"]->optimizers().size(), 17u);
  EXPECT_STREQ(by_id["samplers"]->samplers().at(0)->objectives[0], "flow");
  EXPECT_STREQ(by_id["schedules"]->schedules().at(0)->id, "normal");
}

TEST_F(PluginTest, ExportsOneSymbol) {
  for (const char* name : {"flux", "optim", "samplers", "schedules"}) {
    boost::dll::library_info info(built / (std::string(name) + ".so"));
    EXPECT_THAT(info.symbols(), ElementsAre(LH_PLUGIN_SYMBOL)) << name;
  }
}

TEST_F(PluginTest, BrokenPluginsOfTheDefaultDirectoryAreWarnings) {
  fs::path file = write(with_abi(LH_ABI_MAJOR + 1, 0), "old.so");
  EXPECT_EQ(load_plugins({{dir_, false}}).size(), 0u);
  EXPECT_THAT(test::take_warnings(), ElementsAre(AllOf(HasSubstr("left out"), HasSubstr(file.string()))));
  EXPECT_THAT(error_of([&] { load_plugins({{dir_, false}}, {"old"}); }), HasSubstr("old.so"));
  EXPECT_THAT(error_of([&] { load_plugins({{dir_, true}}); }), HasSubstr("old.so"));
  EXPECT_EQ(load_plugins({{dir_ / "absent", false}}).size(), 0u);
  EXPECT_THAT(error_of([&] { load_plugins({{dir_ / "absent", true}}); }), HasSubstr("cannot list"));
}

TEST_F(PluginTest, FlushToZeroIsRefusedAndUndone) {
#if defined(__x86_64__)
  EXPECT_THAT(error_of([&] { Plugin one(misbehaving / "flush_to_zero.so"); }), HasSubstr("-ffast-math"));
  volatile float tiny = 1e-40f;
  EXPECT_NE(tiny * 0.5f, 0.0f);
#endif
}

TEST_F(PluginTest, InitThatFails) {
  EXPECT_THAT(error_of([&] { Plugin one(misbehaving / "refuses_init.so"); }),
              HasSubstr("'refuses' 0 refused to start (status -2): not today"));
}

// The wrapper keeps C++ exceptions inside the plugin.
TEST_F(PluginTest, ExceptionsStayInside) {
  const Registry registry({}, {misbehaving / "throws.so"});
  const Optimizer rule(registry, "throws", {});
  std::vector<std::string> known;
  EXPECT_EQ(error_of([&] { rule.build_pass(0, {.shape = {4}}, known); }),
            "plugin 'throws', optimizer 'throws', build_pass: a vector");
  EXPECT_EQ(error_of([&] {
              rule.build_pass(0, {.shape = {4, 4}}, known);
            }),
            "plugin 'throws', optimizer 'throws', build_pass: unknown C++ exception in the plugin");
}

TEST_F(PluginTest, ModelProbeAndItsErrors) {
  const Plugin plugin(built / "flux.so");
  const Offered<lh_model> flux{plugin.models().at(0), &plugin.host()};
  std::map<std::string, Desc> weights;
  const auto confidence = [&] { return probe(flux, weights, nullptr).confidence; };
  const auto problem = [&]() -> std::string {
    try {
      const PluginModel model(flux, weights);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::data);
      return error.what();
    }
    return "";
  };
  const auto add = [&](const char* name, Shape shape) { weights[name] = {DType::bf16, std::move(shape)}; };
  EXPECT_EQ(confidence(), 0);
  add("img_in.weight", {256, 64});
  add("double_blocks.0.img_attn.qkv.weight", {768, 256});
  add("single_blocks.0.linear1.weight", {1792, 256});
  EXPECT_EQ(confidence(), 100);
  EXPECT_EQ(problem(), "missing tensor final_layer.linear.weight [*, 256]");
  add("final_layer.linear.weight", {64, 256});
  add("img_in.bias", {256});
  add("txt_in.weight", {128, 96});
  EXPECT_EQ(problem(), "txt_in.weight: expected shape [256, *], found [128, 96]");
  add("double_stream_modulation_img.lin.weight", {1, 1});
  EXPECT_EQ(confidence(), 0);
}

}  // namespace
}  // namespace lh::plugin_test
