#include "run/usual_rate.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/run_settings.h"

namespace lh {

std::optional<double> usual_rate(const Registry& registry, const std::string& optimizer) {
  const lh_optimizer& rule = *registry.optimizer(optimizer).descriptor;
  if (!LH_HAS(&rule, lh_optimizer, learning_rate) || rule.learning_rate == 0) return std::nullopt;
  return rule.learning_rate;
}

void fill_rates(const Registry& registry, TrainSection& train) {
  if (train.lr) return;
  const auto rate_of = [&](const std::string& id) { return usual_rate(registry, id).value_or(TrainSection::usual_lr); };
  train.lr = rate_of(train.optimizer);
  for (Phase& phase : train.phases) {
    const yaml::Node* const optimizer = phase.settings.find("optimizer");
    if (optimizer == nullptr || phase.settings.find("lr") != nullptr) continue;
    yaml::Node rate{.kind = yaml::Kind::scalar, .text = fmt::format("{}", rate_of(optimizer->text))};
    phase.settings.entries.emplace_back(yaml::Node{.kind = yaml::Kind::scalar, .place = phase.place, .text = "lr"},
                                        std::move(rate));
  }
}

std::string low_rate(const Registry& registry, const TrainSection& train) {
  const std::optional<double> usual = usual_rate(registry, train.optimizer);
  if (!usual) return "";
  const auto text = [&](const char* key, double rate) {
    return fmt::format(
        "{} {} is far below {}, which is usual for {}: so it learns next to nothing. Leave it out, or set it to {}",
        key, rate, *usual, train.optimizer, *usual);
  };
  const auto low = [&](double rate) { return rate < *usual / 10; };
  if (low(train.learning_rate())) return text("lr", train.learning_rate());
  const auto of_text = std::ranges::find_if(train.text_encoder_lr, low);
  const bool said = train.train_text_encoder && of_text != train.text_encoder_lr.end();
  return said ? text("text_encoder_lr", *of_text) : "";
}

std::vector<std::string> low_rates(const Registry& registry, const TrainSection& train, const std::string& place) {
  std::vector<std::string> lines;
  const auto look = [&](const std::string& front, const TrainSection& now) {
    if (const std::string text = low_rate(registry, now); !text.empty()) lines.push_back(front + text);
  };
  if (train.phases.empty()) look(place + "train: ", train);
  RunSettings settings(train);
  for (size_t i = 0; i < train.phases.size(); ++i) {
    const Phase& phase = train.phases[i];
    settings.enter_phase(i);
    look(fmt::format("{}:{}:{}: train.phases: ", phase.source, phase.place.line, phase.place.column), settings.train());
  }
  return lines;
}

}  // namespace lh
