#include "io/kohya_ss_model_spec.h"

namespace lh {

std::optional<KohyaSsModel> read_kohya_ss_model(const yaml::Strict& in, const yaml::Node& root) {
  const yaml::Node* node = root.find("kohya_ss");
  if (node == nullptr) return std::nullopt;
  in.check_fields(*node, "kohya_ss", {"on", "prefixes", "fields", "lora_type", "network_args", "trains_text"});
  KohyaSsModel model;
  model.on = in.text(in.need(*node, "on", "kohya_ss"), "on");
  in.set(*node, "prefixes", model.prefixes);
  in.set(*node, "fields", model.fields);
  in.set(*node, "lora_type", model.lora_type);
  in.set(*node, "network_args", model.network_args);
  in.set(*node, "trains_text", model.trains_text);
  return model;
}

}  // namespace lh
