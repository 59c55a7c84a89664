// Troff: what begins with a dot or a quote, and every backslash and hyphen, has to be kept from being read as more.
#include <fmt/core.h>

#include "cli/pages.h"

namespace lh {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (begins && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\')
      out += "\\e";
    else if (text[i] == '-')
      out += "\\-";
    else
      out += text[i];
  }
  return out;
}

// Lines as they are.
std::string verbatim(const std::string& text) {
  return text.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(text));
}

std::string options_of(const CommandInfo& command) {
  std::string out;
  for (const OptionInfo& option : command.options) {
    if (option.of_plugin) continue;
    std::string names;
    for (const std::string& name : option.names)
      names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escaped(name));
    const std::string value = option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", escaped(option.value));
    out += fmt::format(".TP\n{}{}\n{}\n", names, value, escaped(option.help));
  }
  return out;
}

}  // namespace

std::string man_page(const std::vector<CommandInfo>& commands, const std::string& plugins) {
  const CommandInfo& program = commands.front();
  std::string out = fmt::format(
      ".\\\" Made from the table of options.\n.TH LORA\\-HOST 1 \"\" \"lora\\-host {}\" \"User Commands\"\n"
      ".SH NAME\nlora\\-host \\- {}\n.SH SYNOPSIS\n.B lora\\-host\n[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]\n",
      escaped(LORA_HOST_VERSION), "trains LoRA adapters for diffusion models");
  out += fmt::format(".SH DESCRIPTION\n{}\n", escaped(program.help));
  out += "Without a command, \\fBtrain\\fR is meant.\n.SH OPTIONS\n" + options_of(program) + verbatim(program.after);
  for (size_t i = 1; i < commands.size(); ++i) {
    const CommandInfo& command = commands[i];
    out += fmt::format(".SH {}\n{}\n{}{}", escaped(command.name), escaped(command.help), options_of(command),
                       verbatim(command.after));
  }
  return out + ".SH FILES AND SETTINGS OF MODELS\n" + verbatim(plugins);
}

}  // namespace lh
