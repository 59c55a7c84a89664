// The name of a repository in place of a path is answered with what to fetch.
#include "io/repository.h"

#include <gmock/gmock.h>

#include "plugin/published.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::repository_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Repository, NamesAreToldFromPaths) {
  for (const char* name : {"org/model", "Org-1/model_v1.5", "a/b.c"}) EXPECT_NE(repository_hint(name, {}), "") << name;
  for (const char* path : {"model", "org/model/x", "/org/model", "org/", "./model", "../model", "~/model", "org/a b",
                           "org/model.safetensors", "org/model.gguf", "a//b", "org/.hidden", ""})
    EXPECT_EQ(repository_hint(path, {}), "") << path;
  EXPECT_THAT(repository_hint("Org/Model", {{"org/model", "its one file"}}),
              AllOf(HasSubstr("hf download Org/Model --local-dir models/Model"),
                    HasSubstr("What is needed of this one: its one file. docs/getting-models.md")));
}

TEST(Repository, EveryCommandThatOpensAModelAnswers) {
  const std::string photos = std::string(source_dir()) + "/examples/demo/photos";
  for (const auto& [words, code] : {std::pair<std::vector<std::string>, int>{
                                        {"train", "--model", "black-forest-labs/FLUX.1-dev", "--dataset", photos}, 2},
                                    {{"train", "--model", "flux", "--checkpoint", "black-forest-labs/FLUX.1-dev",
                                      "--dataset", photos, "--device", "cpu"},
                                     3},
                                    {{"inspect", "black-forest-labs/flux.1-dev"}, 3}}) {
    const HostResult result = run_host(words);
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("nothing is fetched here"), HasSubstr("flux1-dev.safetensors (name_or_path)"),
                      HasSubstr("Agree to its licence there first")));
  }
}

TEST(Repository, TheDocumentationListsThoseOfThePlugins) {
  const Published published = published_models(Registry({std::filesystem::path(binary_dir()) / "lib/lora-host"}, {}));
  const std::string page = get(std::filesystem::path(source_dir()) / "docs/getting-models.md");
  EXPECT_GE(published.size(), 20u);
  for (const auto& [name, what] : published)
    EXPECT_THAT(page, HasSubstr("[" + name + "](https://huggingface.co/" + name + ")"));
}

TEST(Repository, TheReadmeListsThePluginsOfModels) {
  const std::filesystem::path source = source_dir();
  const std::string page = get(source / "README.md");
  const size_t list = page.find("    plugins/   ");
  ASSERT_NE(list, page.npos);
  const std::string line = " " + page.substr(list + 15, page.find(';', list) - list - 15) + ",";
  for (const auto& entry : std::filesystem::directory_iterator(source / "plugins"))
    if (const std::string name = " " + entry.path().filename().string() + ",";
        std::filesystem::exists(entry.path() / "checkpoint.yaml") && line.find(name) == line.npos)
      ADD_FAILURE() << name << " in" << line;
}

}  // namespace
}  // namespace lh::test::repository_test
