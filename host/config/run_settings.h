// The settings of `train` that may change while a run goes on: by its phases, by hand (`lora-host ctl`), or by another
// configuration when it is resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace lh {

// Lays a mapping of such settings ({lr: 1e-4, optimizer: lion}) over `train`. Another optimizer begins with the
// defaults of its options, another schedule with those of its parameters, unless the mapping has them; else they are
// added to those that are there. What is wrong is appended to `problems`, each with its key; source: of the options'
// places.
void change_settings(TrainSection& train, const yaml::Node& mapping, const std::string& source,
                     std::vector<yaml::Problem>& problems);
// {"lr=1e-5", "optimizer=lion"} as a mapping: values are YAML, keys may have dots (optimizer_params.weight_decay).
// Throws lh::Error(Code::config).
yaml::Node settings_of(const std::vector<std::string>& assignments);
// Throws lh::Error(Code::config) where a phase would begin when the run has ended.
void check_phases(const TrainSection& train);

// The settings in force at a point of a run. They are the configuration's, over them those of its phase, and over these
// what was set by hand since the phase began.
class RunSettings {
 public:
  // As the configuration says for the step after `step` steps.
  explicit RunSettings(const TrainSection& file, int64_t step = 0);

  // Only the settings that may change are those of the run; the rest of a RunSettings made of text is not known.
  const TrainSection& train() const { return train_; }
  // Of the learning rate's schedule: what `step` counts from, and how many steps it is made for.
  int64_t schedule_first() const { return first_; }
  int64_t schedule_steps() const { return end_ - first_; }
  // The phase that begins after `step` steps, if one does that is not in force yet.
  std::optional<size_t> phase_at(int64_t step) const;

  void enter_phase(size_t phase);
  // Both throw lh::Error(Code::config) for what is wrong with it, each line beginning with `source`, and change
  // nothing.
  void set(const yaml::Node& mapping, int64_t step, const std::string& source);
  // Another configuration from here on. What was set by hand stays, but for keys that the two configurations have
  // otherwise.
  void replace_file(const TrainSection& file, int64_t step);

  // "optimizer adamw8bit, lr 0.0001, lr_scheduler constant"
  std::string summary() const;
  // What the configuration says of these settings, as YAML in one line: two with one text mean the same.
  static std::string file_text(const TrainSection& file);
  static TrainSection file_of(const std::string& text, const std::string& source);
  std::string file_text() const { return file_text(file_); }
  // All of it as text, and back. Throws lh::Error(Code::data), which begins with `source`.
  std::string text() const;
  static RunSettings of(const std::string& text, const std::string& source);

 private:
  void lay_over();  // makes train_ of the other members

  TrainSection file_, train_;
  size_t phase_ = 0;
  yaml::Node by_hand_{.kind = yaml::Kind::map};
  int64_t set_at_ = 0;  // steps behind it when the schedule was last set by hand
  int64_t first_ = 0, end_ = 0;
};

}  // namespace lh
