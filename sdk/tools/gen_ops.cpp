// gen_ops OPS.yaml BUILDER.hpp CATALOGUE.inc OPS.md - makes code and documentation of the op catalogue:
//   BUILDER.hpp    one typed C++ method per op, class lora_host::Ops
//   CATALOGUE.inc  initialisers of the host's checking table (CatalogueEntry)
//   OPS.md         the list for authors of plugins
// Mistakes in the catalogue are reported as file:line and end with status 1.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::string catalogue_path;

[[noreturn]] void fail_at(const YAML::Node& node, const std::string& text) {
  throw std::runtime_error(catalogue_path + ":" + std::to_string(node.Mark().line + 1) + ": " + text);
}

enum class Type { integer, real, boolean, string, integers };

struct TypeInfo {
  const char* spelling;  // in ops.yaml
  char letter;           // in the host's table
  const char* argument;  // C++ parameter type
  const char* make;      // function that makes the lh_attr
};

const std::map<Type, TypeInfo> types = {
    {Type::integer, {"int", 'i', "int64_t", "integer"}},     {Type::real, {"float", 'f', "double", "real"}},
    {Type::boolean, {"bool", 'b', "bool", "integer"}},       {Type::string, {"string", 's', "const char*", "text"}},
    {Type::integers, {"ints", 'l', "Integers", "integers"}},
};

struct Attr {
  std::string name;
  Type type = Type::integer;
  bool required = true;
  std::string value;              // default, as a C++ literal
  std::vector<std::string> list;  // default of a list
};

struct Input {
  std::string name;
  bool optional = false, list = false;
};

struct Op {
  std::string full, name;  // "rope/1", "rope"
  int64_t revision = 1;
  std::vector<Input> inputs;
  std::vector<Attr> attrs;
  int outputs = 1;  // -1: the length of outputs_attr
  std::string outputs_attr, shape;
  bool grad = false;
};

std::string identifier(const YAML::Node& where, const std::string& text) {
  bool good = !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
              (text[0] < '0' || text[0] > '9');
  if (!good) fail_at(where, "'" + text + "' is not a lower-case identifier");
  static const std::set<std::string> keywords = {"default", "operator", "new",   "delete", "switch", "case", "if",
                                                 "else",    "for",      "while", "do",     "int",    "bool", "float",
                                                 "double",  "return",   "class", "union",  "and",    "or",   "not"};
  if (keywords.contains(text)) fail_at(where, "'" + text + "' is a C++ keyword");
  return text;
}

std::string trimmed(const std::string& text) {
  size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

int64_t parse_integer(const YAML::Node& where, const std::string& text) {
  size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (text.empty() || used != text.size()) fail_at(where, "'" + text + "' is not an integer");
  return value;
}

std::string real_literal(const YAML::Node& where, const std::string& text) {
  size_t used = 0;
  try {
    (void)std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (text.empty() || used != text.size()) fail_at(where, "'" + text + "' is not a number");
  return text.find_first_of(".eE") == std::string::npos ? text + ".0" : text;
}

// "int = 1", "ints = 0 0 0 0", "float"
Attr parse_attr(const YAML::Node& name, const YAML::Node& rule) {
  Attr attr;
  attr.name = identifier(name, name.as<std::string>());
  if (!rule.IsScalar()) fail_at(name, "attribute '" + attr.name + "' must be 'type' or 'type = default'");
  std::string text = rule.as<std::string>();
  size_t equals = text.find('=');
  std::string type = trimmed(text.substr(0, equals));
  bool known = false;
  for (const auto& [key, info] : types)
    if (type == info.spelling) attr.type = key, known = true;
  if (!known) fail_at(rule, "unknown type '" + type + "'; expected int, float, bool, string or ints");
  if (equals == std::string::npos) return attr;
  attr.required = false;
  std::string value = trimmed(text.substr(equals + 1));
  switch (attr.type) {
    case Type::integer: attr.value = std::to_string(parse_integer(rule, value)); break;
    case Type::real: attr.value = real_literal(rule, value); break;
    case Type::boolean:
      if (value != "true" && value != "false") fail_at(rule, "'" + value + "' is not true or false");
      attr.value = value;
      break;
    case Type::string:
      if (value.find_first_of("\"\\") != std::string::npos)
        fail_at(rule, "a string default has no quotes or backslashes");
      attr.value = "\"" + value + "\"";
      break;
    case Type::integers: {
      std::istringstream words(value);
      for (std::string word; words >> word;) attr.list.push_back(std::to_string(parse_integer(rule, word)));
      break;
    }
  }
  return attr;
}

std::vector<Input> parse_inputs(const YAML::Node& node) {
  std::vector<Input> inputs;
  if (!node.IsSequence()) fail_at(node, "inputs must be a list of names");
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) fail_at(item, "an input must be a name");
    std::string text = item.as<std::string>();
    Input input;
    input.optional = text.ends_with('?');
    input.list = text.ends_with('*');
    if (input.optional || input.list) text.pop_back();
    input.name = identifier(item, text);
    if (!inputs.empty() && inputs.back().list) fail_at(item, "only the last input can be a list");
    if (!inputs.empty() && inputs.back().optional && !input.optional)
      fail_at(item, "input '" + text + "' comes after an optional one and must be optional too");
    inputs.push_back(input);
  }
  return inputs;
}

Op parse_op(const YAML::Node& key, const YAML::Node& body) {
  Op op;
  op.full = key.as<std::string>();
  size_t slash = op.full.find('/');
  if (slash == std::string::npos) fail_at(key, "'" + op.full + "' has no revision; expected name/1");
  op.name = identifier(key, op.full.substr(0, slash));
  op.revision = parse_integer(key, op.full.substr(slash + 1));
  if (op.revision < 1) fail_at(key, "a revision counts from 1");
  if (!body.IsMap()) fail_at(key, "'" + op.full + "' must be a mapping");
  for (const auto& field : body) {
    static const std::set<std::string> fields = {"inputs", "attrs", "outputs", "shape", "grad"};
    if (!fields.contains(field.first.as<std::string>()))
      fail_at(field.first, "unknown field '" + field.first.as<std::string>() + "' of " + op.full);
  }
  for (const char* needed : {"inputs", "shape", "grad"})
    if (!body[needed]) fail_at(key, op.full + " has no '" + std::string(needed) + "'");
  op.inputs = parse_inputs(body["inputs"]);
  op.shape = body["shape"].as<std::string>();
  op.grad = body["grad"].as<bool>();
  std::set<std::string> names;
  for (const Input& input : op.inputs)
    if (!names.insert(input.name).second) fail_at(body["inputs"], "'" + input.name + "' appears twice");
  if (body["attrs"])
    for (const auto& attr : body["attrs"]) {
      op.attrs.push_back(parse_attr(attr.first, attr.second));
      if (!names.insert(op.attrs.back().name).second)
        fail_at(attr.first, "'" + op.attrs.back().name + "' appears twice");
    }
  if (YAML::Node outputs = body["outputs"]) {
    std::string text = outputs.as<std::string>();
    if (text.find_first_not_of("0123456789") == std::string::npos) {
      op.outputs = static_cast<int>(parse_integer(outputs, text));
      if (op.outputs < 1) fail_at(outputs, "an op has at least one output");
    } else {
      op.outputs = -1;
      op.outputs_attr = text;
      bool found = false;
      for (const Attr& attr : op.attrs) found = found || (attr.name == text && attr.type == Type::integers);
      if (!found) fail_at(outputs, "'" + text + "' is no 'ints' attribute of " + op.full);
    }
  }
  return op;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// Parameters: needed inputs, needed attributes, optional inputs, attributes with a default.
std::string parameters(const Op& op) {
  std::vector<std::string> needed, attrs, optional, defaults;
  for (const Input& input : op.inputs) {
    if (input.list)
      needed.push_back("Values " + input.name);
    else if (input.optional)
      optional.push_back("Value " + input.name + " = {}");
    else
      needed.push_back("Value " + input.name);
  }
  for (const Attr& attr : op.attrs) {
    std::string text = std::string(types.at(attr.type).argument) + " " + attr.name;
    if (attr.required)
      attrs.push_back(text);
    else
      defaults.push_back(text + " = " + (attr.type == Type::integers ? "{" + joined(attr.list) + "}" : attr.value));
  }
  std::vector<std::string> all = needed;
  for (const auto* part : {&attrs, &optional, &defaults}) all.insert(all.end(), part->begin(), part->end());
  return joined(all);
}

void write_method(std::ostream& out, const Op& op) {
  bool one = op.outputs == 1;
  out << "  // " << op.shape << "\n  " << (one ? "Value " : "std::vector<Value> ") << op.name << "(" << parameters(op)
      << ") {\n";
  bool list = !op.inputs.empty() && op.inputs.back().list;
  std::vector<std::string> names, attrs;
  for (const Input& input : op.inputs)
    if (!input.list) names.push_back(input.name);
  std::string inputs = list && names.empty() ? op.inputs.back().name : "inputs_";
  if (inputs == "inputs_") {
    out << "    std::vector<Value> inputs_ = {" << joined(names) << "};\n";
    if (list) {
      const std::string& tail = op.inputs.back().name;
      out << "    inputs_.insert(inputs_.end(), " << tail << ".begin(), " << tail << ".end());\n";
    }
  }
  for (const Attr& attr : op.attrs)
    attrs.push_back("attr::" + std::string(types.at(attr.type).make) + "(\"" + attr.name + "\", " + attr.name + ")");
  std::string count = op.outputs < 0 ? op.outputs_attr + ".size()" : std::to_string(op.outputs);
  out << "    return emit(\"" << op.full << "\", " << inputs << ", {" << joined(attrs) << "}, " << count << ")"
      << (one ? "[0]" : "") << ";\n  }\n";
}

void write_builder(std::ostream& out, const std::vector<Op>& ops) {
  out << "// Generated from ops.yaml by gen_ops: one method per op. Do not edit.\n#pragma once\n\n"
      << "#include \"lora_host/builder.hpp\"\n\nnamespace lora_host {\n\nclass Ops : public Builder {\n public:\n"
      << "  using Builder::Builder;\n\n";
  std::map<std::string, int64_t> newest;  // older revisions stay in the table but get no method
  for (const Op& op : ops) newest[op.name] = std::max(newest[op.name], op.revision);
  for (const Op& op : ops)
    if (op.revision == newest[op.name]) write_method(out, op);
  out << "};\n\n}  // namespace lora_host\n";
}

void write_catalogue(std::ostream& out, const std::vector<Op>& ops) {
  out << "// Generated from ops.yaml by gen_ops: elements of a std::vector<CatalogueEntry>. Do not edit.\n";
  for (const Op& op : ops) {
    int least = 0, most = 0;
    for (const Input& input : op.inputs) {
      if (input.list)
        most = -1, ++least;
      else
        ++most, least += input.optional ? 0 : 1;
    }
    std::vector<std::string> attrs, defaults;
    for (const Attr& attr : op.attrs) {
      attrs.push_back("{\"" + attr.name + "\", '" + types.at(attr.type).letter + "', " +
                      (attr.required ? "true" : "false") + "}");
      if (attr.required) continue;
      std::string value;
      switch (attr.type) {
        case Type::integer: value = "int64_t{" + attr.value + "}"; break;
        case Type::boolean: value = attr.value == "true" ? "int64_t{1}" : "int64_t{0}"; break;
        case Type::real: value = "double{" + attr.value + "}"; break;
        case Type::string: value = "std::string(" + attr.value + ")"; break;
        case Type::integers: value = "std::vector<int64_t>{" + joined(attr.list) + "}"; break;
      }
      defaults.push_back("{\"" + attr.name + "\", " + value + "}");
    }
    out << "{\"" << op.full << "\", " << least << ", " << most << ", {" << joined(attrs) << "}, {" << joined(defaults)
        << "}, " << (op.grad ? "true" : "false") << ", " << op.outputs << ", "
        << (op.outputs_attr.empty() ? "nullptr" : "\"" + op.outputs_attr + "\"") << "},\n";
  }
}

// Text in a table's cell.
std::string cell(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

// "conv2d(x, weight, bias?, stride = 1)"
std::string call(const Op& op) {
  std::vector<std::string> needed, attrs, optional, defaults;
  for (const Input& input : op.inputs)
    (input.optional ? optional : needed)
        .push_back(input.list ? "{" + input.name + "...}" : input.name + (input.optional ? "?" : ""));
  for (const Attr& attr : op.attrs) {
    std::string value = attr.type == Type::integers ? "{" + joined(attr.list) + "}" : attr.value;
    (attr.required ? attrs : defaults).push_back(attr.required ? attr.name : attr.name + " = " + value);
  }
  std::vector<std::string> all = needed;
  for (const auto* part : {&attrs, &optional, &defaults}) all.insert(all.end(), part->begin(), part->end());
  return op.name + "(" + joined(all) + ")";
}

void write_list(std::ostream& out, const std::vector<Op>& ops) {
  out << "# Ops\n\nEverything that a graph can be made of. Made of `ops.yaml`; do not edit. Each op is a method of "
         "`lora_host::Graph`: inputs,\nattributes without a default, optional inputs (`?`), attributes with one. "
         "`{parts...}` is a list of values. `grad`: whether a\ngradient flows through. `linear`, `conv2d`, `embedding` "
         "and the norms also take a module's name in place of their weights\n([plugin-guide.md](plugin-guide.md)).\n\n"
         "| op | gives | grad |\n|---|---|---|\n";
  for (const Op& op : ops)
    out << "| `" << call(op) << "`" << (op.revision > 1 ? " (" + op.full + ")" : "") << " | " << cell(op.shape) << " | "
        << (op.grad ? "yes" : "no") << " |\n";
}

std::vector<Op> read_catalogue() {
  YAML::Node root = YAML::LoadFile(catalogue_path);
  if (!root.IsMap() || !root["ops"] || !root["ops"].IsMap())
    throw std::runtime_error(catalogue_path + ":1: expected a mapping 'ops'");
  std::vector<Op> ops;
  std::set<std::string> names;
  for (const auto& entry : root["ops"]) {
    ops.push_back(parse_op(entry.first, entry.second));
    if (!names.insert(ops.back().full).second) fail_at(entry.first, "'" + ops.back().full + "' appears twice");
  }
  return ops;
}

void save(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(std::string(path) + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: gen_ops OPS.yaml BUILDER.hpp CATALOGUE.inc OPS.md\n";
    return 1;
  }
  catalogue_path = argv[1];
  try {
    std::vector<Op> ops = read_catalogue();
    std::ostringstream builder, catalogue, list;
    write_builder(builder, ops);
    write_catalogue(catalogue, ops);
    write_list(list, ops);
    save(argv[2], builder.str());
    save(argv[3], catalogue.str());
    save(argv[4], list.str());
  } catch (const YAML::Exception& error) {
    std::cerr << catalogue_path << ":" << error.mark.line + 1 << ": " << error.msg << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
