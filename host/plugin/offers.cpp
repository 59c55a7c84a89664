#include "plugin/offers.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "plugin/loader.h"

namespace lh {

PluginOffers::PluginOffers(const Plugin& plugin)
    : id(plugin.entry().id), samplers(!plugin.samplers().empty()), schedules(!plugin.schedules().empty()) {
  for (const lh_model* model : plugin.models()) models.push_back({model->id, model->checkpoint});
  for (const lh_adapter* adapter : plugin.adapters()) adapters.emplace_back(adapter->id);
  for (const lh_optimizer* optimizer : plugin.optimizers()) {
    Rule& rule = optimizers.emplace_back();
    rule.id = optimizer->id;
    for (const char* const* name = optimizer->names; name != nullptr && *name != nullptr; ++name)
      rule.names.emplace_back(*name);
  }
}

std::string PluginOffers::text() const {
  nlohmann::json json{{"id", id}, {"adapters", adapters}, {"samplers", samplers}, {"schedules", schedules}};
  json["models"] = json["optimizers"] = nlohmann::json::array();
  for (const Model& model : models) json["models"].push_back({{"id", model.id}, {"checkpoint", model.checkpoint}});
  for (const Rule& rule : optimizers) json["optimizers"].push_back({{"id", rule.id}, {"names", rule.names}});
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PluginOffers::PluginOffers(const std::string& text) try {
  const nlohmann::json json = nlohmann::json::parse(text);
  id = json.at("id");
  adapters = json.at("adapters");
  samplers = json.at("samplers");
  schedules = json.at("schedules");
  for (const auto& model : json.at("models")) models.push_back({model.at("id"), model.at("checkpoint")});
  for (const auto& rule : json.at("optimizers")) optimizers.push_back({rule.at("id"), rule.at("names")});
} catch (const nlohmann::json::exception& error) {
  fail(Code::data, "this is no list of what a plugin offers: {}", error.what());
}

}  // namespace lh
