// Repeats a history, begins phases, and hands the states of one optimizer to the next.
#include "train/changes.h"

#include <algorithm>
#include <charconv>

#include "config/value.h"
#include "core/error.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/signals.h"
#include "run/lr_schedule.h"
#include "run/optimizer_state.h"
#include "run/usual_rate.h"

namespace lh {
namespace {

yaml::Node mapping_of(const std::string& text, const std::string& source) {
  std::vector<yaml::Problem> problems;
  yaml::Node node = yaml::parse(text, problems);
  if (!problems.empty() || node.kind != yaml::Kind::map)
    fail(Code::data, "{}: expected a mapping of settings, found {}", source, text);
  return node;
}

RunSettings changed(RunSettings settings, const Change& change, const std::string& source) {
  if (change.kind == break_change) {
    // The settings are those of before: what is another is no setting that may change.
  } else if (change.kind == file_change) {
    settings.replace_file(RunSettings::file_of(change.value, source), change.step);
  } else if (change.kind == phase_change) {
    size_t phase = 0;
    std::from_chars(change.value.data(), change.value.data() + change.value.size(), phase);
    if (settings.phase_at(change.step) != phase)
      fail(Code::data, "{}: there is no phase {} that begins after step {}", source, change.value, change.step);
    settings.enter_phase(phase);
  } else {
    settings.set(mapping_of(change.value, source), change.step, source);
  }
  return settings;
}

std::string last_file(const std::vector<Change>& changes) {
  const auto last =
      std::find_if(changes.rbegin(), changes.rend(), [](const Change& c) { return c.kind == file_change; });
  return last == changes.rend() ? "" : last->value;
}

}  // namespace

RunChanges::RunChanges(Prepared& prepared, const Start& start)
    : p_(prepared),
      history_(prepared.config.output_dir() / "history.jsonl", start.writes),
      settings_(prepared.config.train) {
  const std::string file = RunSettings::file_text(p_.config.train);
  begin(start, file);
  const std::vector<Change>& all = history_.changes();
  const int64_t step = start.saved != nullptr ? start.saved->step : 0;
  if (applied_ < all.size() && all[applied_].step < step)
    fail(Code::data, "{}: its change after step {} is not part of the state of step {}",
         (p_.config.output_dir() / "history.jsonl").string(), all[applied_].step, step);
  if (last_file(all) != file) {
    for (size_t i = applied_; i < all.size(); ++i)
      log_info("no longer repeated, because the configuration is another one: after step {}, {} {}", all[i].step,
               all[i].kind, all[i].value);
    history_.keep(applied_);
    history_.insert(applied_, {step, std::string(file_change), file});
  }
  if (start.saved != nullptr && !start.saved->broken.empty()) {
    const Change broken{step, std::string(break_change), start.saved->broken};
    if (applied_ == history_.changes().size() || history_.changes()[applied_] != broken)
      history_.insert(applied_, broken);
  }
  plan_ahead();
}

// What is in force at the start, and the part of the history that is behind it.
void RunChanges::begin(const Start& start, const std::string& file) {
  const std::vector<Change> first{{0, std::string(file_change), file}};
  if (!start.replay.empty()) {
    const History given(start.replay);
    if (given.changes().empty() || given.changes()[0].step != 0 || given.changes()[0].kind != file_change)
      fail(Code::data, "--replay {}: expected the history of a run from its first step on", start.replay.string());
    for (const Change& change : given.changes())
      if (change.kind == break_change)
        fail(Code::config,
             "--replay {}: that run went on with changes after step {} ({}): no one configuration repeats it",
             start.replay.string(), change.step, change.value);
    if (const std::string last = last_file(given.changes()); last != file)
      fail(
          Code::config,
          "--replay {}: that run's configuration ended as\n  {}\nand this one says\n  {}\nSet train of this one to the "
          "same",
          start.replay.string(), last, file);
    history_.repeat(given.changes());
  } else if (start.saved == nullptr && (!start.resumed || history_.changes().empty())) {
    history_.repeat(first);
  } else if (start.saved == nullptr && history_.changes()[0].step > 0) {
    // Of a run that went on from another one's folder: it has no first steps to repeat.
    const int64_t step = history_.changes()[0].step;
    if (!start.anew)
      fail(Code::data,
           "{}: this run went on from step {} of another one, and its folder has no state. Go on with --resume and the "
           "folder of that run, or begin at step 0 with --resume-from none",
           (p_.config.output_dir() / "history.jsonl").string(), step);
    history_.repeat(first);
  } else if (start.saved != nullptr && (!start.own_folder || start.saved->changes == 0 ||
                                        history_.changes().size() < static_cast<size_t>(start.saved->changes))) {
    if (start.own_folder && start.saved->changes > 0)
      log_warning(
          "history.jsonl has {} changes, the state of step {} was made after {}: what came later cannot be "
          "repeated",
          history_.changes().size(), start.saved->step, start.saved->changes);
    settings_ = start.saved->settings.empty() ? RunSettings(p_.config.train, start.saved->step)
                                              : RunSettings::of(start.saved->settings, "the saved state");
    history_.repeat({{start.saved->step, std::string(file_change), settings_.file_text()}});
    applied_ = 1;
    return;
  }
  if (start.saved != nullptr) {
    settings_ = RunSettings::of(start.saved->settings, "the saved state");
    applied_ = static_cast<size_t>(start.saved->changes);
  } else {
    settings_ = RunSettings(RunSettings::file_of(history_.changes()[0].value, "history.jsonl"));
    applied_ = 1;
  }
}

void RunChanges::plan_ahead() {
  RunSettings settings = settings_;
  p_.plan->also(settings.train());
  for (size_t i = applied_; i < history_.changes().size(); ++i) {
    settings = changed(settings, history_.changes()[i], "history.jsonl");
    p_.plan->also(settings.train());
  }
  if (p_.plan->memory.total() > p_.limit)
    fail(Code::resource,
         "the optimizers of this run's history do not fit: {} MiB are needed, {} MiB of memory may be used",
         p_.plan->memory.total() >> 20, p_.limit >> 20);
  p_.plan->optimizer = p_.plan->setup_for(settings_.train());
  rates_ = p_.plan->optimizer->rates(settings_.train());
}

bool RunChanges::due(int64_t step) const {
  return (applied_ < history_.changes().size() && history_.changes()[applied_].step <= step) ||
         settings_.phase_at(step).has_value();
}

void RunChanges::apply_due(StepRunner& runner, RunState& state) {
  while (due(state.step)) {
    const std::vector<Change>& all = history_.changes();
    if (applied_ == all.size() || all[applied_].step > state.step)
      history_.insert(applied_,
                      {state.step, std::string(phase_change), std::to_string(*settings_.phase_at(state.step))});
    const Change& change = history_.changes()[applied_];
    const bool broken = change.kind == break_change;
    const std::string what = broken ? "goes on although " + change.value
                                    : take_over(changed(settings_, change, "history.jsonl"), runner, state);
    ++applied_;
    Progress::make_room();
    log_info("after step {}: {}", state.step, what);
  }
}

RunSettings RunChanges::proposed(const std::vector<std::string>& assignments, int64_t step) {
  RunSettings next = settings_;
  next.set(settings_of(assignments), step, "");
  const auto setup = p_.plan->setup_for(next.train());
  if (setup != p_.plan->optimizer)
    if (const std::string why = p_.plan->obstacle(*setup, p_.limit); !why.empty())
      fail(Code::resource, "optimizer '{}' cannot take over: {}", setup->rules().base().id(), why);
  return next;
}

std::string RunChanges::set(const RunSettings& next, const std::vector<std::string>& assignments, StepRunner& runner,
                            RunState& state) {
  history_.insert(applied_, {state.step, std::string(set_change), schema::print_node(settings_of(assignments))});
  ++applied_;
  p_.plan->also(next.train());
  const std::string text = take_over(next, runner, state), low = low_rate(p_.registry, next.train());
  return low.empty() ? text : fmt::format("{}; {}", text, low);
}

std::string RunChanges::take_over(const RunSettings& next, StepRunner& runner, RunState& state) {
  const WholeChange whole;
  const auto before = p_.plan->optimizer, setup = p_.plan->setup_for(next.train());
  std::string text = next.summary();
  if (setup != before) {
    const OptimizerValues values = optimizer_values(runner.update());
    const bool another = setup->rules().base().id() != before->rules().base().id();
    if (another && before->plan().evaluates()) {  // goes on from the weights that would have been saved
      runner.update().evaluate();
      p_.plan->adapters->copy("evaluation", "p");
    }
    runner.use(setup);
    const TakeOver kept = load_optimizer(values, runner.update());
    if (!kept.all_kept()) state.updates = 0;
    runner.set_state(state.updates, state.loss_scale);
    text += "; " + kept.text();
  }
  settings_ = next;
  rates_ = setup->rates(settings_.train());
  return text;
}

TrainSection RunChanges::scheduled() const {
  TrainSection train = settings_.train();
  train.steps = settings_.schedule_steps();
  return train;
}

std::vector<double> RunChanges::rates(int64_t step) const {
  return learning_rates(scheduled(), rates_, step - settings_.schedule_first());
}

double RunChanges::rate(int64_t step) const {
  return learning_rate(scheduled(), settings_.train().learning_rate(), step - settings_.schedule_first());
}

}  // namespace lh
