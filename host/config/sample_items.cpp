// A text with flags becomes the mapping that says the same; mappings are checked by the rows of the keys of `sample`
// that their fields are named after.
#include "config/sample_items.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "config/scalar.h"
#include "config/schema.h"
#include "config/value.h"

namespace lh::schema {
namespace {

using yaml::Kind;
using yaml::Node;

// A field of a mapping, and the flags that kohya and ai-toolkit have for it.
struct Row {
  std::string_view field;
  std::string_view flag, long_flag = {};
};
constexpr Row rows[] = {{"neg", "n"},
                        {"width", "w"},
                        {"height", "h"},
                        {"num_frames", "f", "num_frames"},
                        {"fps", "fps"},
                        {"seed", "d", "seed"},
                        {"guidance_scale", "l", "cfg"},
                        {"sample_steps", "s", "steps"},
                        {"guidance_rescale", "gr"},
                        {"do_cfg_norm", "do_cfg_norm"},
                        {"renorm_cfg", "rcfg"},
                        {"cfg_trunc_ratio", "ctr"},
                        {"network_multiplier", "m", "network_multiplier"},
                        {"ctrl_img", "ctrl_img"},
                        {"ctrl_img_2", "ctrl_img_2"},
                        {"ctrl_img_3", "ctrl_img_3"},
                        {"image", "image"},
                        {"mask", "mask"}};

// Fields that name an image, and its key among a model's.
constexpr std::pair<std::string_view, const char*> image_fields[] = {{"ctrl_img", "control"},
                                                                     {"ctrl_img_2", "control_2"},
                                                                     {"ctrl_img_3", "control_3"},
                                                                     {"image", "image"},
                                                                     {"mask", "mask"}};

// Fields and flags of those programs that say nothing at `harmless`, and what to do otherwise.
struct Foreign {
  std::string_view name, harmless, fix;
};
constexpr std::string_view several = "name each image in `images` by the model's key";
constexpr Foreign foreign[] = {{"ctrl_idx", "0", several},
                               {"p2", "", "all text encoders are given one prompt"},
                               {"n2", "", "all text encoders are given one negative prompt"}};

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n\r");
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1));
}

// An empty text is one, too.
std::string quoted(std::string text) { return text.empty() ? "\"\"" : print_value(&text); }

class Reader {
 public:
  explicit Reader(std::vector<yaml::Problem>& problems) : problems_(problems) {}

  SampleItem read(const Node& node) {
    SampleItem item;
    said_.clear();
    if (node.kind == Kind::scalar) {
      read_text(node, item);
    } else if (node.kind == Kind::map) {
      for (const auto& [key, value] : node.entries)
        if (key.text != "prompt") read_field(key.text, key.place, value, item);
      const Node* prompt = node.find("prompt");
      if (prompt == nullptr || prompt->kind == Kind::list || prompt->kind == Kind::map)
        wrong(node.place, "expected a mapping with the text `prompt`");
      else
        read_text(*prompt, item);
    } else {
      wrong(node.place, "expected a prompt, or a mapping with one, found " + yaml::describe(node));
    }
    return item;
  }

 private:
  void wrong(yaml::Place place, std::string text) { problems_.push_back({place, std::move(text)}); }

  // "a cat --w 768 --n blurry"
  void read_text(const Node& node, SampleItem& item) {
    const std::string& text = node.text;
    size_t flag = next_flag(text, 0);
    item.prompt = flag == text.npos ? text : trimmed(std::string_view(text).substr(0, flag));
    while (flag != text.npos) {
      const size_t next = next_flag(text, flag + 2);
      const std::string_view part = std::string_view(text).substr(flag + 2, next - flag - 2);
      const std::string name(part.substr(0, part.find_first_of(" \t\n")));
      const std::string value = trimmed(part.substr(name.size()));
      const auto row = std::ranges::find_if(rows, [&](const Row& r) { return r.flag == name || r.long_flag == name; });
      const Node given{.kind = Kind::scalar, .place = node.place, .text = value};
      if (row != std::end(rows))
        read_field(std::string(row->field), node.place, given, item, "--" + name);
      else
        unknown(name, node.place, given, "--" + name);
      flag = next;
    }
  }

  // The place of the next "--word" that begins a word.
  static size_t next_flag(const std::string& text, size_t from) {
    for (size_t at = text.find("--", from); at != text.npos; at = text.find("--", at + 1)) {
      const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t' || text[at - 1] == '\n';
      const bool word = at + 2 < text.size() && (std::isalpha(static_cast<unsigned char>(text[at + 2])) != 0);
      if (begins && word) return at;
    }
    return text.npos;
  }

  // What was said of a field before, under the name that it was said by.
  struct Said {
    std::string shown;
    Node value;
  };

  // Two flags may say the same of an image, one flag twice may not; over a field of the mapping a flag counts, as in
  // ai-toolkit. True for what is to be read.
  bool agrees(const std::string& name, const std::string& shown, yaml::Place place, const Node& value) {
    const auto [before, first] = said_.try_emplace(name, Said{shown, value});
    if (first) return true;
    const auto& [other, said] = before->second;
    if (shown.starts_with("--") && !other.starts_with("--")) {
      before->second = {shown, value};
      return true;
    }
    if (other == shown) {
      wrong(place, fmt::format("{}: given twice. Keep one of them", shown));
    } else if (const auto number = yaml::number_of(value);
               value.text != said.text && (!number || number != yaml::number_of(said))) {
      wrong(place, fmt::format("{}: {}, and {}: {} in line {}, say two things of one image. Keep one of them", shown,
                               quoted(value.text), other, quoted(said.text), said.place.line));
    }
    return false;
  }

  void read_field(std::string name, yaml::Place place, const Node& value, SampleItem& item, std::string shown = "") {
    if (shown.empty()) shown = name;
    if (value.kind == Kind::null) return;  // as if it were not there
    if (name == "ctrl_img_1") name = "ctrl_img";
    if (name == "frames") name = "num_frames";
    if (name == "images") return assign_image(shown, value, item);
    for (const auto& [field, key] : image_fields)
      if (name == field) {
        Node mapping{.kind = Kind::map, .place = value.place};
        mapping.entries.emplace_back(Node{.kind = Kind::scalar, .place = place, .text = key}, value);
        return value.text.empty() ? void() : assign_image(shown, mapping, item);
      }
    const bool known = std::ranges::find(rows, name, &Row::field) != std::end(rows);
    if (known && !agrees(name, shown, place, value)) return;
    if (name == "width")
      item.width = integer(name, shown, value);
    else if (name == "height")
      item.height = integer(name, shown, value);
    else if (name == "num_frames")
      item.num_frames = integer(name, shown, value);
    else if (name == "fps")
      item.fps = number(name, shown, value);
    else if (name == "seed")
      item.seed = integer(name, shown, value);
    else if (name == "sample_steps")
      item.sample_steps = integer(name, shown, value);
    else if (name == "guidance_scale")
      item.guidance_scale = number(name, shown, value);
    else if (name == "guidance_rescale")
      item.guidance_rescale = number(name, shown, value);
    else if (name == "do_cfg_norm")
      item.do_cfg_norm = assigned<bool>(name, shown, value);
    else if (name == "renorm_cfg")
      item.renorm_cfg = number(name, shown, value);
    else if (name == "cfg_trunc_ratio")
      item.cfg_trunc_ratio = number(name, shown, value);
    else if (name == "network_multiplier")
      item.network_multiplier = number(name, shown, value);
    else if (name == "neg")
      item.neg = text_of(name, shown, value);
    else
      unknown(name, place, value, shown);
  }

  void unknown(const std::string& name, yaml::Place place, const Node& value, const std::string& shown) {
    const auto row = std::ranges::find(foreign, name, &Foreign::name);
    if (row != std::end(foreign)) {
      if (value.text != row->harmless) wrong(place, fmt::format("{}: not supported: {}", shown, row->fix));
      return;
    }
    std::vector<std::string_view> known;
    for (const Row& r : rows) known.push_back(shown.starts_with("--") ? r.flag : r.field);
    wrong(place,
          fmt::format("{}: unknown {}. Known: {}{}", shown, shown.starts_with("--") ? "flag" : "key",
                      shown.starts_with("--") ? "--" : "", fmt::join(known, shown.starts_with("--") ? ", --" : ", ")));
  }

  // Assigns by the row of sample.<name>.
  template <typename T>
  std::optional<T> assigned(const std::string& name, const std::string& shown, const Node& value) {
    std::vector<yaml::Problem> found;
    T out{};
    assign(*find("sample." + name), &out, value, found);
    for (const auto& [place, text] : found) wrong(place, fmt::format("{}: {}", shown, text));
    return found.empty() ? std::optional(out) : std::nullopt;
  }
  std::optional<int64_t> integer(const std::string& name, const std::string& shown, const Node& value) {
    return assigned<int64_t>(name, shown, value);
  }
  std::optional<double> number(const std::string& name, const std::string& shown, const Node& value) {
    return assigned<double>(name, shown, value);
  }
  std::optional<std::string> text_of(const std::string& name, const std::string& shown, const Node& value) {
    return assigned<std::string>(name, shown, value);
  }

  void assign_image(const std::string& shown, const Node& value, SampleItem& item) {
    std::vector<yaml::Problem> found;
    ImagePaths images;
    Key row = *find("sample.images");
    row.rules.lists = false;  // one file each
    assign(row, &images, value, found);
    for (const auto& [place, text] : found) wrong(place, fmt::format("{}: {}", shown, text));
    for (auto& [key, paths] : images) {
      const Node path{.kind = Kind::scalar, .place = value.place, .text = paths[0].text};
      if (agrees("images." + key, shown, value.place, path)) item.images[key] = paths[0];
    }
  }

  std::vector<yaml::Problem>& problems_;
  std::map<std::string, Said> said_;  // of the item that is read; by field, and "images.<key>"
};

std::string printed(const SampleItem& item) {
  std::string fields;
  const auto add = [&](std::string_view name, const std::string& value) {
    fields += fmt::format(", {}: {}", name, value);
  };
  if (item.neg) add("neg", quoted(*item.neg));
  if (item.width) add("width", fmt::format("{}", *item.width));
  if (item.height) add("height", fmt::format("{}", *item.height));
  if (item.num_frames) add("num_frames", fmt::format("{}", *item.num_frames));
  if (item.fps) add("fps", fmt::format("{}", *item.fps));
  if (item.seed) add("seed", fmt::format("{}", *item.seed));
  if (item.guidance_scale) add("guidance_scale", fmt::format("{}", *item.guidance_scale));
  if (item.guidance_rescale) add("guidance_rescale", fmt::format("{}", *item.guidance_rescale));
  if (item.do_cfg_norm) add("do_cfg_norm", fmt::format("{}", *item.do_cfg_norm));
  if (item.renorm_cfg) add("renorm_cfg", fmt::format("{}", *item.renorm_cfg));
  if (item.cfg_trunc_ratio) add("cfg_trunc_ratio", fmt::format("{}", *item.cfg_trunc_ratio));
  if (item.sample_steps) add("sample_steps", fmt::format("{}", *item.sample_steps));
  if (item.network_multiplier) add("network_multiplier", fmt::format("{}", *item.network_multiplier));
  if (!item.images.empty()) {
    ImagePaths images;
    for (const auto& [key, path] : item.images) images[key] = {path};
    add("images", print_value(&images));
  }
  return fields.empty() ? quoted(item.prompt) : fmt::format("{{prompt: {}{}}}", quoted(item.prompt), fields);
}

}  // namespace

std::vector<SampleItem> read_samples(const Node& node, std::vector<yaml::Problem>& problems) {
  std::vector<SampleItem> items;
  if (node.kind == Kind::null) return items;
  Reader reader(problems);
  for (const Node& item : node.kind == Kind::list ? node.items : std::vector<Node>{node})
    items.push_back(reader.read(item));
  return items;
}

std::string print_samples(const std::vector<SampleItem>& items) {
  std::vector<std::string> all;
  for (const SampleItem& item : items) all.push_back(printed(item));
  return all.empty() ? "" : fmt::format("[{}]", fmt::join(all, ", "));
}

}  // namespace lh::schema
