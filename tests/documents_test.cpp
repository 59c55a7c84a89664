// What a plugin reads beside the weights: documents of a diffusers directory, metadata, settings, and what it is told
// where they are not there; names by prefix.
#include "io/documents.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "lora_host/lora_host.hpp"
#include "plugin/call.h"
#include "plugin/services.h"
#include "support/model_files.h"

namespace lh::test::documents_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DocumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(transformer_);
    write_safetensors(transformer_ / "model.safetensors", {}, {{"modelspec.title", "a title"}});
    file_ = std::make_shared<const Safetensors>(transformer_ / "model.safetensors");
    put(transformer_ / "config.json", R"({"num_attention_heads": 8})");
    put(folder_.path() / "model_index.json", R"({"_class_name": "Pipeline"})");
    documents_.set_root(folder_.path());
    documents_.add("denoiser", transformer_, {file_});
    documents_.add("vae", {}, {file_});
  }
  std::string refused(const std::string& name) const {
    try {
      (void)documents_.document("denoiser", name);
    } catch (const Error& error) {
      return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    }
    return "";
  }

  TempDir folder_;
  fs::path transformer_ = folder_.path() / "transformer";
  FilePtr file_;
  Documents documents_;
};

TEST_F(DocumentsTest, AreFoundWhereTheyBelong) {
  EXPECT_EQ(documents_.document("denoiser", "config.json").text, R"({"num_attention_heads": 8})");
  EXPECT_EQ(documents_.document("", "model_index.json").text, R"({"_class_name": "Pipeline"})");
  EXPECT_EQ(documents_.document("", "transformer/config.json").text, R"({"num_attention_heads": 8})");
  EXPECT_EQ(documents_.metadata("denoiser", "modelspec.title").text, "a title");
}

TEST_F(DocumentsTest, AbsenceIsExplained) {
  const std::string folder = transformer_.string();
  EXPECT_EQ(documents_.document("denoiser", "other.json").absence, folder + "/other.json does not exist");
  EXPECT_EQ(documents_.document("t5", "config.json").absence, "config.json: the checkpoint has no component 't5'");
  EXPECT_THAT(documents_.document("vae", "config.json").absence,
              HasSubstr("the weights of vae are in the single file"));
  EXPECT_EQ(documents_.metadata("denoiser", "other").absence,
            fmt::format("no metadata 'other' in {}/model.safetensors", folder));
  EXPECT_EQ(documents_.metadata("t5", "key").absence, "metadata 'key': the checkpoint has no component 't5'");
  EXPECT_EQ(Documents().document("", "model_index.json").absence, "model_index.json: the model has no folder");
  documents_.set_root(transformer_ / "model.safetensors");
  EXPECT_THAT(documents_.document("", "model_index.json").absence, HasSubstr("the model is the single file"));
}

TEST_F(DocumentsTest, BrokenOnesAreRefused) {
  put(transformer_ / "broken.json", "{\"a\": ");
  EXPECT_THAT(refused("broken.json"), HasSubstr("3: " + (transformer_ / "broken.json").string() + ": no valid JSON"));
  put(transformer_ / "text.txt", "\xff\xfe");
  EXPECT_THAT(refused("text.txt"), HasSubstr("no UTF-8 text"));
  put(transformer_ / "zero.txt", std::string("a\0b", 3));
  EXPECT_THAT(refused("zero.txt"), HasSubstr("zero byte"));
  put(transformer_ / "large.txt", std::string((4 << 20) + 1, 'a'));
  EXPECT_THAT(refused("large.txt"), HasSubstr("3: "));
  put(transformer_ / "full.txt", std::string(4 << 20, 'a'));
  EXPECT_EQ(refused("full.txt"), "");
  fs::create_directories(transformer_ / "folder.json");
  EXPECT_THAT(refused("folder.json"), HasSubstr("a folder, expected a text file"));
  for (const char* name : {"", "../model_index.json", "/etc/passwd", "a/../../b", "folder/"})
    EXPECT_THAT(refused(name), HasSubstr("6: ")) << name;
}

// The same through the C++ wrapper, inside a callback.
TEST_F(DocumentsTest, InThePlugin) {
  const std::map<std::string, Desc> shapes{{"a.0.w", {DType::f32, {1}}},
                                           {"a.1.w", {DType::f32, {2}}},
                                           {"ab", {DType::f32, {3}}},
                                           {"vae:b", {DType::f32, {4}}}};
  const PluginHost host{{&host_api()}, "test", {}};
  const ModelHandle model = open_context(host, shapes, &documents_, {{"variant", "dev"}});
  Call call(host, "create", model.get());
  call.run([&] {
    const lora_host::Weights weights(model.get());
    EXPECT_THAT(weights.names("a."), ElementsAre("a.0.w", "a.1.w"));
    EXPECT_THAT(weights.names(), ElementsAre("a.0.w", "a.1.w", "ab", "vae:b"));
    EXPECT_EQ(weights.first_with_prefix("vae:"), "vae:b");
    EXPECT_EQ(weights.first_with_prefix("b"), "");
    EXPECT_EQ(weights.first_with_prefix("z"), "");
    EXPECT_EQ(weights.count("a.", ".w"), 2);
    EXPECT_EQ(weights.setting("variant"), "dev");
    EXPECT_EQ(weights.setting("other"), std::nullopt);
    EXPECT_EQ(weights.absence(), "model.other is not set");
    EXPECT_EQ(weights.document("denoiser", "config.json"), R"({"num_attention_heads": 8})");
    EXPECT_EQ(weights.document("", "absent.json"), std::nullopt);
    EXPECT_THAT(weights.absence(), HasSubstr("absent.json does not exist"));
    EXPECT_EQ(weights.metadata("denoiser", "modelspec.title"), "a title");
  });
  EXPECT_NO_THROW(call.check(LH_OK));
}

// A broken document fails the callback, whatever the plugin makes of it.
TEST_F(DocumentsTest, ABrokenOneFailsTheCallback) {
  put(transformer_ / "config.json", "no json");
  const std::map<std::string, Desc> shapes;
  const PluginHost host{{&host_api()}, "test", {}};
  const ModelHandle model = open_context(host, shapes, &documents_);
  Call call(host, "create", model.get());
  call.run([&] { EXPECT_EQ(lora_host::Weights(model.get()).document("denoiser", "config.json"), std::nullopt); });
  try {
    call.check(LH_OK);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::data);
    EXPECT_THAT(error.what(), HasSubstr("plugin 'test', create: document: "));
  }
}

}  // namespace
}  // namespace lh::test::documents_test
