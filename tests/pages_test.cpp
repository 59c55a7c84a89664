// The manual page and the completions of shells are made of the table of options, and the programs that read them do.
#include "cli/pages.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>

#include "support/io_files.h"

namespace lh::test::pages_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<PluginKeys> plugins{{"tiny", {{.name = "words_path", .help = "It's a [file]: of words."}}}};

// What a shell prints, errors too; nothing where there is no such program.
std::string output_of(const std::string& program, const std::string& command) {
  if (std::system(("command -v " + program + " >/dev/null").c_str()) != 0) return "";
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> part;
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), n);
  ::pclose(pipe);
  return out;
}

TEST(Pages, TheTableHasEveryCommand) {
  const std::vector<CommandInfo> table = command_table(plugins);
  EXPECT_EQ(table.front().name, "lora-host");
  ASSERT_GE(table.size(), 13u);
  for (size_t i = 1; i < table.size(); ++i) {
    EXPECT_NE(table[i].help, "") << table[i].name;
    for (const OptionInfo& option : table[i].options)
      EXPECT_TRUE(option.of_plugin || !option.help.empty()) << table[i].name << ' ' << option.names.at(0);
  }
}

TEST(Pages, TheManualPageIsOne) {
  const std::string page = man_page(command_table({}), "  --words PATH   Words.\n.so /etc/passwd\n");
  EXPECT_THAT(page, AllOf(HasSubstr(".SH train\n"), HasSubstr("\\fB\\-\\-lr\\-scheduler\\fR \\fIconstant|"),
                          HasSubstr("\n\\&.so /etc/passwd"), HasSubstr("lora\\-host train \\-\\-config train.yaml")));
  const TempDir dir;
  put(dir / "lora-host.1", page);
  EXPECT_EQ(output_of("groff", "groff -man -Tascii -ww -z " + (dir / "lora-host.1").string()), "");
}

TEST(Pages, BashCompletes) {
  const TempDir dir;
  put(dir / "completion", bash_completion(command_table(plugins)));
  const auto completed = [&](const std::string& words, int at) {
    return output_of("bash", "bash -c 'source " + (dir / "completion").string() + "; COMP_WORDS=(" + words +
                                 "); COMP_CWORD=" + std::to_string(at) + "; _lora_host; echo \"${COMPREPLY[*]}\"'");
  };
  EXPECT_EQ(completed("lora-host tr", 1), "train\n");
  EXPECT_EQ(completed("lora-host train --dtype b", 3), "bf16\n");
  EXPECT_EQ(completed("lora-host train --lr-s", 2), "--lr-scheduler\n");
  EXPECT_EQ(completed("lora-host --dry", 1), "--dry-run\n");
  EXPECT_EQ(completed("lora-host sample --wor", 2), "--words\n");
  EXPECT_EQ(completed("lora-host inspect --lr", 2), "\n");
  EXPECT_EQ(completed("lora-host train --config a", 3), "\n");  // files, by the shell
}

TEST(Pages, OtherShellsReadTheirs) {
  const TempDir dir;
  const std::vector<CommandInfo> table = command_table(plugins);
  const std::string zsh = zsh_completion(table), fish = fish_completion(table);
  EXPECT_THAT(zsh, AllOf(HasSubstr("'train:Train a LoRA.'"), HasSubstr(":value:(bf16 fp16 fp32)'"),
                         HasSubstr("Device memory that may be taken\\: 12GiB, or a number of GiB.")));
  EXPECT_THAT(fish, AllOf(HasSubstr("-n __fish_use_subcommand -a train -d 'Train a LoRA.'\n"),
                          HasSubstr("-n '__fish_seen_subcommand_from train' -l dtype -x -a 'bf16 fp16 fp32' -d ")));
  put(dir / "_lora-host", zsh);
  put(dir / "lora-host.fish", fish);
  EXPECT_EQ(output_of("zsh", "zsh -n " + (dir / "_lora-host").string()), "");
  EXPECT_EQ(output_of("fish", "fish -n " + (dir / "lora-host.fish").string()), "");
}

}  // namespace
}  // namespace lh::test::pages_test
