#include "config/kohya_ss_network.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "config/scalar.h"
#include "config/script_arguments.h"

namespace lh::kohya_ss {
namespace {

using kohya::scalar;
using yaml::Kind;
using yaml::Node;

// Which of the fields are arguments of which network there; the others are left over from another type.
struct Type {
  std::string_view name, module, algo, arguments;
};
constexpr Type types[] = {
    {"Standard", "networks.lora", "",
     "down_lr_weight mid_lr_weight up_lr_weight block_lr_zero_threshold block_dims block_alphas conv_block_dims "
     "conv_block_alphas rank_dropout module_dropout"},
    {"Kohya LoCon", "networks.lora", "",
     "conv_dim conv_alpha down_lr_weight mid_lr_weight up_lr_weight block_lr_zero_threshold block_dims block_alphas "
     "conv_block_dims conv_block_alphas rank_dropout module_dropout"},
    {"Kohya LoHa", "networks.loha", "", "conv_dim conv_alpha use_tucker rank_dropout module_dropout"},
    {"Kohya LoKr", "networks.lokr", "", "conv_dim conv_alpha use_tucker factor rank_dropout module_dropout"},
    {"Kohya DyLoRA", "networks.dylora", "", ""},
    {"LoRA-FA", "networks.lora_fa", "", ""},
    {"LyCORIS/LoCon", "lycoris.kohya", "locon",
     "LyCORIS_preset conv_dim conv_alpha use_tucker rank_dropout bypass_mode dora_wd module_dropout use_scalar "
     "rank_dropout_scale train_norm"},
    {"LyCORIS/LoHa", "lycoris.kohya", "loha",
     "LyCORIS_preset conv_dim conv_alpha use_tucker rank_dropout bypass_mode dora_wd module_dropout use_scalar "
     "rank_dropout_scale train_norm"},
    {"LyCORIS/LoKr", "lycoris.kohya", "lokr",
     "LyCORIS_preset conv_dim conv_alpha use_tucker rank_dropout bypass_mode dora_wd module_dropout factor use_cp "
     "use_scalar decompose_both rank_dropout_scale train_norm"},
    {"LyCORIS/Native Fine-Tuning", "lycoris.kohya", "full",
     "LyCORIS_preset rank_dropout module_dropout rank_dropout_scale train_norm"},
    {"LyCORIS/BOFT", "lycoris.kohya", "boft", ""},
    {"LyCORIS/Diag-OFT", "lycoris.kohya", "diag-oft", ""},
    {"LyCORIS/DyLoRA", "lycoris.kohya", "dylora", ""},
    {"LyCORIS/GLoRA", "lycoris.kohya", "glora", ""},
    {"LyCORIS/iA3", "lycoris.kohya", "ia3", ""},
};

// Of every network that the scripts have.
constexpr std::string_view of_all = "loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio";
constexpr std::string_view of_models = "rank_dropout module_dropout";
// Of networks that are refused, or of what is: alone they ask for nothing.
constexpr std::string_view of_others =
    "LoRA_type constrain rescaled train_on_input unit train_blocks enable_all_linear ggpo_beta ggpo_sigma";

std::vector<std::string> split(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// As the scripts have it.
std::string argument(const std::string& field) { return field == "LyCORIS_preset" ? "preset" : field; }

}  // namespace

const Node* Fields::given(std::string_view name) const {
  const Node* value = file_.find(name);
  return value == nullptr || yaml::asks_for_nothing(*value) ? nullptr : value;
}

double Fields::number(std::string_view name) const {
  const Node* value = given(name);
  return value == nullptr ? 0 : yaml::number_of(scalar(*value, value->text)).value_or(0);
}

bool Fields::flag(std::string_view name) const {
  const Node* value = file_.find(name);
  return value != nullptr && yaml::flag_of(*value) == true;
}

std::vector<std::string> network_fields() {
  std::vector<std::string> all = split(of_all);
  const auto add = [&](std::string_view list) { std::ranges::copy(split(list), std::back_inserter(all)); };
  add(of_others);
  for (const Type& type : types) add(type.arguments);
  return all;
}

void Fields::read_network(const std::vector<const KohyaSsModel*>& kinds, const Put& put) const {
  const Node &key = *file_.find_key("LoRA_type"), &value = *file_.find("LoRA_type");
  const std::string name = value.text == "LoCon" ? "LyCORIS/LoCon" : value.text;  // as files of older versions have it
  const auto* const type = std::ranges::find(types, name, &Type::name);
  const auto own = std::ranges::find(kinds, name, [](const KohyaSsModel* kind) { return kind->lora_type; });
  std::vector<std::string> fields;
  std::string module = name;  // of one that is not known, which is refused by its name
  Node arguments{.kind = Kind::list, .place = key.place};
  if (type != std::end(types)) {
    fields = split(type->arguments);
    module = type->module;
    if (!type->algo.empty()) arguments.items.push_back(scalar(key, fmt::format("algo={}", type->algo)));
  } else if (own != kinds.end()) {
    fields = split(of_models);
    fields.insert(fields.end(), (*own)->network_args.begin(), (*own)->network_args.end());
    module = "networks.lora";
  }
  std::ranges::copy(split(of_all), std::back_inserter(fields));
  for (const std::string& field : fields) {
    const Node* said = given(field);
    const bool factor = field == "factor" && number(field) == -1;  // which is its usual one
    if (said != nullptr && !factor)
      arguments.items.push_back(scalar(*said, fmt::format("{}={}", argument(field), said->text)));
  }
  put("network_module", key, scalar(value, module));
  if (!arguments.items.empty()) put("network_args", key, std::move(arguments));
}

}  // namespace lh::kohya_ss
