// gen_roles HEADER... OUT.md - makes the reference of roles of the comments in the plugin headers. Lines of a comment
// that begin with a mark are taken:
//   @role name: text     a table of its own, with the @input, @output and @size lines that follow
//   @source name: text   a row of the table of sources
// A line without a mark goes on with the one above it; an empty line ends it. Mistakes are reported as file:line and
// end with status 1.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Row {
  std::string mark, name, text;
};
struct Header {
  std::string file;  // "lora_host/model.h"
  std::vector<Row> rows;
};

const std::vector<std::string> marks = {"role", "input", "output", "size", "source"};

// " * text" -> "text"
std::string inner(const std::string& line) {
  size_t star = line.find_first_not_of(' ');
  if (star == std::string::npos || (line[star] != '*' && line.compare(star, 2, "/*") != 0)) return "";
  size_t text = line.find_first_not_of("/* ", star);
  return text == std::string::npos ? "" : line.substr(text);
}

Header read_header(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  Header out{"lora_host/" + path.substr(path.find_last_of('/') + 1), {}};
  bool open = false;  // the last row may go on
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::string text = inner(line);
    if (text.empty() || text[0] != '@') {
      open = open && !text.empty();
      if (open) out.rows.back().text += " " + text;
      continue;
    }
    size_t blank = text.find(' '), colon = text.find(": ");
    std::string mark = text.substr(1, blank - 1);
    bool known = std::find(marks.begin(), marks.end(), mark) != marks.end();
    if (!known || blank == std::string::npos || colon == std::string::npos || colon < blank)
      throw std::runtime_error(path + ":" + std::to_string(number) +
                               ": expected \"@role name: text\", or input, output, size or source for role");
    if (out.rows.empty() && mark != "role" && mark != "source")
      throw std::runtime_error(path + ":" + std::to_string(number) + ": @" + mark + " before any @role");
    out.rows.push_back({mark, text.substr(blank + 1, colon - blank - 1), text.substr(colon + 2)});
    open = true;
  }
  if (out.rows.empty()) throw std::runtime_error(path + ": has no lines with a mark");
  return out;
}

// Text in a table's cell.
std::string cell(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

// "rows of text" -> "Rows of text."
std::string sentence(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

std::string write(const std::vector<Header>& headers) {
  std::ostringstream out;
  out << "# Roles\n\nWhat the host asks plugins to build, what each graph is given and what it has to give. "
         "Made of the comments in the headers;\n"
         "do not edit. h, w, t are places of latents, H and W pixels, T frames; `LH_FLOAT` is the type that the host "
         "computes in, f32 and\ni32 are what they say.\n";
  for (const Header& header : headers) {
    out << "\n## " << header.file << "\n";
    std::string table;  // the mark that the table at hand is of: "role" or "source"
    for (const Row& row : header.rows) {
      if (row.mark == "role") {
        out << "\n### " << row.name << "\n\n" << sentence(row.text) << "\n\n| | name | what |\n|---|---|---|\n";
        table = "role";
      } else if (row.mark == "source") {
        if (table != "source")
          out << "\n### Sources\n\nWhat a recipe's `inputs` can name.\n\n| source | what |\n|---|---|\n";
        table = "source";
        out << "| `" << row.name << "` | " << cell(row.text) << " |\n";
      } else {
        out << "| " << row.mark << " | `" << row.name << "` | " << cell(row.text) << " |\n";
      }
    }
  }
  return out.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: gen_roles HEADER... OUT.md\n";
    return 1;
  }
  try {
    std::vector<Header> headers;
    for (int i = 1; i + 1 < argc; ++i) headers.push_back(read_header(argv[i]));
    std::ofstream file(argv[argc - 1], std::ios::binary);
    file << write(headers);
    file.close();
    if (!file) throw std::runtime_error(std::string(argv[argc - 1]) + ": cannot be written");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
