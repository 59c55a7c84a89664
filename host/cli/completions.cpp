// Completions are tables: commands, options of each, choices of an option's value. Where a value is no choice, files
// are offered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "cli/pages.h"

namespace lh {
namespace {

constexpr const char* made = "# Made from the table of options.\n";

// "bf16|fp16" -> "bf16 fp16"; of a placeholder, nothing: its words are capitals.
std::string choices_of(const OptionInfo& option) {
  if (option.value.find('|') == std::string::npos ||
      std::ranges::any_of(option.value, [](unsigned char c) { return std::isupper(c) != 0; }))
    return {};
  std::string words = option.value;
  std::ranges::replace(words, '|', ' ');
  return words;
}

std::vector<std::string> names_of(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  for (size_t i = 1; i < commands.size(); ++i) names.push_back(commands[i].name);
  return names;
}

// Of a command, its own and the program's.
std::vector<OptionInfo> options_of(const std::vector<CommandInfo>& commands, const CommandInfo& command) {
  std::vector<OptionInfo> all;
  for (const CommandInfo* from : {&command, &commands.front()})
    for (const OptionInfo& option : from->options)
      if (!option.positional && std::ranges::none_of(all, [&](const OptionInfo& o) { return o.names == option.names; }))
        all.push_back(option);
  return all;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

// Between single quotes of a shell.
std::string in_quotes(const std::string& text) { return fmt::format("'{}'", replaced(text, "'", "'\\''")); }

}  // namespace

std::string bash_completion(const std::vector<CommandInfo>& commands) {
  std::string values, options;
  for (size_t i = 1; i < commands.size(); ++i) {
    std::string words;
    for (const OptionInfo& option : options_of(commands, commands[i]))
      for (const std::string& name : option.names) {
        words += name + " ";
        if (const std::string choices = choices_of(option); !choices.empty())
          values += fmt::format("    {}:{}) words='{}' ;;\n", commands[i].name, name, choices);
      }
    options += fmt::format("    {}) words='{}' ;;\n", commands[i].name, words);
  }
  const std::vector<std::string> names = names_of(commands);
  return fmt::format(R"({0}_lora_host() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words= at
  for ((at = 1; at < COMP_CWORD; ++at)); do
    case ${{COMP_WORDS[at]}} in
      {1}) command=${{COMP_WORDS[at]}}; break ;;
    esac
  done
  if [[ -z $command && $COMP_CWORD -eq 1 && $word != -* ]]; then
    COMPREPLY=($(compgen -W '{2}' -- "$word"))
    return
  fi
  case ${{command:-train}}:$before in
{3}  esac
  if [[ -z $words && $word == -* ]]; then
    case ${{command:-train}} in
{4}    esac
  fi
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=()
  fi
}}
complete -o default -F _lora_host lora-host
)",
                     made, fmt::join(names, "|"), fmt::join(names, " "), values, options);
}

std::string zsh_completion(const std::vector<CommandInfo>& commands) {
  const auto plain = [](std::string text) {  // of a description, where brackets and colons would end it
    for (const char* mark : {"[", "]", ":"}) text = replaced(text, mark, std::string("\\") + mark);
    return text;
  };
  std::string list, cases;
  for (size_t i = 1; i < commands.size(); ++i) {
    list += fmt::format("    {}\n", in_quotes(commands[i].name + ":" + plain(commands[i].help)));
    cases += fmt::format("    {}) _arguments", commands[i].name);
    for (const OptionInfo& option : options_of(commands, commands[i]))
      for (const std::string& name : option.names) {
        std::string spec = fmt::format("*{}[{}]", name, plain(option.help));
        if (const std::string choices = choices_of(option); !choices.empty())
          spec += fmt::format(":value:({})", choices);
        else if (!option.value.empty())
          spec += ":value:_files";
        cases += fmt::format(" \\\n      {}", in_quotes(spec));
      }
    cases += " '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef lora-host
{0}_lora_host() {{
  local -a commands
  commands=(
{1}  )
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe command commands
    return
  fi
  local command=train
  if [[ $words[2] != -* ]]; then
    command=$words[2]
    shift words
    (( CURRENT-- ))
  fi
  case $command in
{2}  esac
}}
_lora_host "$@"
)",
                     made, list, cases);
}

std::string fish_completion(const std::vector<CommandInfo>& commands) {
  const auto text = [](const std::string& s) {
    return fmt::format("'{}'", replaced(replaced(s, "\\", "\\\\"), "'", "\\'"));
  };
  std::string out = made;
  for (size_t i = 1; i < commands.size(); ++i) {
    const CommandInfo& command = commands[i];
    out +=
        fmt::format("complete -c lora-host -n __fish_use_subcommand -a {} -d {}\n", command.name, text(command.help));
    for (const OptionInfo& option : options_of(commands, command))
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        out += fmt::format("complete -c lora-host -n '__fish_seen_subcommand_from {}' -{} {}", command.name,
                           is_long ? "l" : "s", name.substr(is_long ? 2 : 1));
        if (const std::string choices = choices_of(option); !choices.empty())
          out += fmt::format(" -x -a {}", text(choices));
        else if (!option.value.empty())
          out += " -r";
        if (!option.help.empty()) out += fmt::format(" -d {}", text(option.help));
        out += "\n";
      }
  }
  return out;
}

}  // namespace lh
