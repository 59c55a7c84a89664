// The trainer between two steps: changes of its settings, and what `lora-host ctl` asks for.
#include <fmt/ranges.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/signals.h"
#include "data/caption.h"
#include "train/trainer.h"

namespace lh {
namespace {

constexpr auto pause_between_looks = std::chrono::milliseconds(50);

}  // namespace

bool Trainer::asked() { return control_ && control_->waiting(); }

void Trainer::listen() {
  try {
    control_.emplace(config_.output_dir());
  } catch (const Error& error) {  // some file systems have no sockets
    log_warning("lora-host ctl will not reach this run: {}", error.what());
  }
}

void Trainer::agree() {
  stopping_ = asked_ = folder_lost_ = false;
  const auto mark = [](bool is) { return is ? '1' : '0'; };
  for (const std::string& one :
       world_.gather({mark(stop_requested()), mark(asked()), mark(folder_ && !folder_->there())})) {
    stopping_ |= one[0] == '1';
    asked_ |= one[1] == '1';
    folder_lost_ |= one[2] == '1';
  }
}

bool Trainer::undisturbed() {
  agree();
  return !stopping_ && !asked_ && !folder_lost_;
}

bool Trainer::at_border(int64_t step) {
  {
    const WholeChange whole;
    changes_->apply_due(*runner_, state_);
  }
  agree();
  do {
    for (; asked_ && !told_to_stop_; agree()) serve(step);
    if (!paused_ || told_to_stop_) break;
    std::this_thread::sleep_for(pause_between_looks);
    agree();
  } while (!stopping_);
  return !told_to_stop_ && !(paused_ && stopping_);
}

// What the first process is asked, all of them do.
void Trainer::serve(int64_t step) {
  const std::optional<ControlRequest> request = control_ ? control_->next() : std::nullopt;
  const std::string line = world_.of_first(request ? request_line(*request) : std::string());
  if (line.empty()) return;
  const ControlAnswer made = answer(*read_request(line), step);
  if (control_) control_->answer(made);
}

ControlAnswer Trainer::answer(const ControlRequest& request, int64_t step) {
  Progress::make_room();
  log_info("ctl: {} {}", request.command, fmt::join(request.arguments, " "));
  std::optional<RunSettings> next;
  std::optional<ControlAnswer> refused;
  try {  // what changes nothing of the run, and may go wrong
    if (request.command == "sample") return {0, world_.first() ? sample(request.arguments, step) : ""};
    if (request.command == "set") next = changes_->proposed(request.arguments, step);
  } catch (const Error& error) {
    refused = {static_cast<int>(error.code()), error.what()};
  }
  if (request.command == "set" && world_.any(refused.has_value()) && !refused)
    refused = {static_cast<int>(Code::resource), "another process of the run refuses it"};
  if (refused) return *refused;
  const WholeChange whole;
  if (next)
    return {0, fmt::format("from step {} on: {}", step + 1, changes_->set(*next, request.arguments, *runner_, state_))};
  if (request.command == "status") return {0, status(step)};
  if (request.command == "save") return {0, save(step, false).string()};
  if (request.command == "pause") {
    paused_ = true;
    return {0, fmt::format("paused after step {}; its memory on the device stays taken", step)};
  }
  if (request.command == "resume") {
    paused_ = false;
    return {0, fmt::format("goes on with step {}", step + 1)};
  }
  if (request.command == "stop") {
    told_to_stop_ = true;
    return {0, fmt::format("stops after step {} and saves; continue with --resume", step)};
  }
  return {static_cast<int>(Code::config), fmt::format("this run knows no command {}", request.command)};
}

// As the run's own samples, but for the prompt.
std::string Trainer::sample(const std::vector<std::string>& prompts, int64_t step) {
  if (prompts.empty()) fail(Code::config, "sample: expected a prompt");
  if (!p_.samples)
    fail(Code::config,
         "sample: no memory is set aside for samples in this run. Give it sample.prompts, stop it and --resume");
  if (p_.shares_base())
    fail(Code::config,
         "sample: with memory.shard_base all processes make samples together, which they do at sample.sample_every "
         "alone");
  std::vector<SampleRequest> requests;
  for (const std::string& prompt : prompts) {
    requests.push_back(p_.requests.front());
    requests.back().prompt = replace_trigger(prompt, config_.trigger_word);
  }
  const std::vector<Prompt> shown = prompts_of(requests, p_.model.recipe());
  if (!p_.live_text) p_.text.prepare(shown);
  const Sizes lengths = p_.live_text ? p_.text.most_lengths() : p_.text.lengths(shown);
  SampleSet denoisers(p_.device, p_.model, p_.selection, p_.compute, p_.sampler, requests, lengths, p_.streaming,
                      p_.experts);
  const Denoiser::Memory memory = denoisers.memory();
  if (memory.arena > p_.plan->memory.activations || memory.workspace > p_.plan->memory.workspace)
    fail(Code::resource, "sample: so long a prompt takes more memory than the run has set aside");
  denoisers.bind(runner_->arena(), *weights_, p_.plan->adapters.get());
  std::vector<std::string> made;
  make_samples(denoisers, step, requests,
               [&](size_t, const Sampled& one) { made.push_back(output_->asked_sample(step, one).string()); });
  return fmt::format("{}", fmt::join(made, "\n"));
}

std::string Trainer::status(int64_t step) const {
  return fmt::format("step {} of {}{}\nloss {:.6g}\n{}\nmemory {} MiB at most", step, config_.train.steps,
                     paused_ ? ", paused" : "", loss_, changes_->settings().summary(), p_.device.peak() >> 20);
}

}  // namespace lh
