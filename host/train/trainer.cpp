// The loop: enqueue, collect, save, sample, and what happens when it is told to stop.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/signals.h"
#include "train/facts.h"
#include "train/metadata.h"

namespace lh {
namespace {

constexpr int64_t read_ahead = 16;                  // micro-batches whose cached entries are on their way
constexpr int64_t steps_between_comparisons = 100;  // of the weights of all processes
constexpr int64_t validation_levels = 4;            // noise levels of each image
constexpr int64_t most_skipped_in_a_row = 50;       // a loss scale that never settles is a fault of the run

bool every(int64_t step, int64_t steps) { return steps > 0 && step % steps == 0; }

}  // namespace

Trainer::Trainer(Prepared& prepared, World& world, const Start& start)
    : p_(prepared), world_(world), config_(prepared.config), maker_(prepared) {
  check_start(start);
  load();
  if (!stopping_) start_or_resume();
}

void Trainer::check_folder(const std::string& resume, const std::string& from) {
  const std::filesystem::path own = config_.output_dir() / "state", &folder = resume_from_.folder;
  if (!resume_from_.own && !std::filesystem::is_empty(own))
    fail(Code::config, "{}: holds an earlier run. Continue it with --resume, or give the new run another `name`",
         config_.output_dir().string());
  if (!folder.empty() && !resume_from_.own && !std::filesystem::is_directory(folder))
    fail(Code::data, "--resume {}: expected the folder of a run, found {}", resume,
         std::filesystem::exists(folder) ? "a file" : "nothing there");
  if (from == "none") {
    if (!resume_from_.own) fail(Code::config, "--resume-from none: leave --resume {} out to start anew", resume);
    set_aside_states(own, std::nullopt);
  } else if (!from.empty()) {
    resume_from_.step = std::stoll(from);
  }
}

// The process that writes chooses the state, and leaves the folder as the others then read it.
void Trainer::check_start(const Start& start) {
  const std::string& resume = start.resume;
  const std::filesystem::path own = config_.output_dir() / "state";
  if (world_.first()) folder_.emplace(config_.output_dir());
  if (resume == "auto")
    resume_from_.folder = own;
  else if (!resume.empty())
    resume_from_.folder = std::filesystem::is_directory(std::filesystem::path(resume) / "state")
                              ? std::filesystem::path(resume) / "state"
                              : std::filesystem::path(resume);
  std::error_code none;
  resume_from_.micro_batches = p_.micro_batches;
  resume_from_.writes = world_.first();
  resume_from_.allow_changes = start.allow_changes;
  const auto look = [&] {
    saved_ = check_state(resume_from_, facts_of(p_));
    // Before the history is written to: a run that is refused leaves none.
    if (saved_ && saved_->step > config_.train.steps)
      fail(Code::config,
           "train.steps: the run has {} steps behind it, {} were asked for. Raise train.steps to continue",
           saved_->step, config_.train.steps);
    take_choices();
    go_on_from_saved();
    changes_.emplace(p_, RunChanges::Start{.saved = saved_ ? &*saved_ : nullptr,
                                           .own_folder = resume_from_.own,
                                           .resumed = !resume.empty(),
                                           .anew = start.from == "none",
                                           .replay = start.replay,
                                           .writes = world_.first()});
  };
  if (world_.first()) {
    resume_from_.own = !resume_from_.folder.empty() && std::filesystem::equivalent(resume_from_.folder, own, none);
    check_folder(resume, start.from);
    look();
    for (const char* kind : {"text", "latents", ""}) remove_leftovers(config_.training_folder / "cache" / kind);
  }
  const std::string chosen = world_.of_first(saved_ ? std::to_string(saved_->step) : "");
  if (world_.first()) return;
  resume_from_.own = !resume_from_.folder.empty() && std::filesystem::equivalent(resume_from_.folder, own, none);
  if (chosen.empty())
    resume_from_.folder.clear();
  else
    resume_from_.step = std::stoll(chosen);
  look();
}

void Trainer::take_choices() const {
  if (!saved_ || !config_.train.deterministic) return;
  auto lines = saved_->choices.find(world_.rank());
  if (lines == saved_->choices.end()) lines = saved_->choices.find(0);
  if (lines == saved_->choices.end()) return;
  try {
    p_.device.take_choices(lines->second);
  } catch (const Error& e) {
    fail(e.code(), "{}: the state of step {} was not written by lora-host: {}", resume_from_.folder.string(),
         saved_->step, e.what());
  }
}

void Trainer::note_choices() {
  if (!config_.train.deterministic) return;
  const std::string own = p_.device.choices();
  std::vector<std::string> all;
  if (apart_)
    state_.choices[world_.rank()] = own;
  else
    all = world_.gather(own);
  for (size_t rank = 0; rank < all.size(); ++rank) state_.choices[static_cast<int64_t>(rank)] = all[rank];
  std::erase_if(state_.choices, [](const auto& of_rank) { return of_rank.second.empty(); });
}

void Trainer::go_on_from_saved() {
  if (!saved_ || saved_->micro_batches < 1 || saved_->micro_batches == p_.micro_batches) return;
  log_info("a step of this run has {} micro-batches, as it began; {} processes share them", saved_->micro_batches,
           world_.size());
  if (saved_->micro_batches < world_.size())
    log_warning("{} of {} processes have no part of a step: it has {} micro-batches",
                world_.size() - saved_->micro_batches, world_.size(), saved_->micro_batches);
  p_.use_micro_batches(saved_->micro_batches);
}

void Trainer::load() {
  // Encoders first, each alone in memory; then the denoiser stays.
  p_.text.prepare(p_.prompts(), world_);
  p_.latents.prepare(p_.cuts(), world_);
  if (p_.sound) p_.sound->prepare(p_.dataset, world_);
  p_.masks.prepare(p_.dataset.samples);
  p_.masks.prepare(p_.dataset.validation);
  if (world_.first()) p_.seen_images.save();
  agree();
  if (stopping_) return;

  open_collectives();
  const WeightShare share =
      p_.shares_base() ? WeightShare{.rank = world_.rank(), .size = world_.size()} : WeightShare{};
  weights_.emplace(p_.device, p_.model.checkpoint(), p_.plan->largest().graph, Weights::Source::file, share);
  if (p_.shares_base()) collectives_->share_weights(weights_->memory());
  runner_.emplace(p_.device, *p_.plan, *weights_,
                  RunnerOptions{.accumulation = p_.micro_batches,
                                .collectives = collectives_ ? &*collectives_ : nullptr,
                                .in_order = config_.train.deterministic,
                                .travel = compute_dtype(config_.train.reduce_dtype),
                                .max_grad_norm = config_.train.max_grad_norm,
                                .loss_scaling = p_.compute == DType::f16});
  if (p_.validation) p_.validation->bind(runner_->arena(), *weights_, *p_.plan->adapters);
  if (!p_.samples) return;
  p_.samples->bind(runner_->arena(), *weights_, p_.plan->adapters.get());
  p_.samples->bind_decoders(runner_->arena());
  if (p_.live_text) p_.live_text->bind(runner_->arena(), *weights_, *p_.plan->adapters);
}

void Trainer::open_collectives() {
  if (world_.alone_here()) return;
  collectives_.emplace(world_, p_.device, config_.device);
  if (!p_.shares_base()) return;
  if (!collectives_->within_step())
    fail(
        Code::resource,
        "memory.shard_base: GPUs bring a model's parts together by NCCL, which these processes cannot use (the message "
        "above says why). Mend that, or set memory.shard_base: false");
  if (p_.micro_batches % world_.size() != 0)
    fail(Code::config,
         "memory.shard_base: all processes have to work on every step, and {} of them cannot share {} micro-batches "
         "evenly. Start another number of processes, or set memory.shard_base: false",
         world_.size(), p_.micro_batches);
  p_.device.use(&*collectives_);
}

void Trainer::start_or_resume() {
  bool resumed = false;
  const auto facts = facts_of(p_);
  if (!resume_from_.folder.empty()) {
    if (auto loaded = load_state(resume_from_, facts, *p_.plan->adapters, runner_->update())) {
      state_ = *loaded;
      resumed = true;
      if (!saved_ || saved_->step != state_.step || saved_->settings != state_.settings)
        fail(Code::data, "{}: the states changed while the run was starting. Start it again",
             resume_from_.folder.string());
      log_info("resuming after step {}", state_.step);
      if (!resume_from_.own) state_.saves.clear();  // files of another folder
      if (resume_from_.own && resume_from_.step && resume_from_.writes)
        set_aside_states(resume_from_.folder, state_.step);
      if (resume_from_.own) on_disk_ = state_.step;
    } else if (!resume_from_.own) {
      fail(Code::data, "{}: there is no valid checkpoint to resume from", resume_from_.folder.string());
    } else {
      log_info("no checkpoint in {}: starting at step 0", resume_from_.folder.string());
    }
  }
  if (!resumed) {
    p_.plan->adapters->initialise(static_cast<uint64_t>(config_.train.seed),
                                  base_weights(p_.device, p_.model.checkpoint(), *weights_, p_.plan->largest().graph));
    if (p_.warm_start) p_.warm_start->apply(*p_.plan->adapters);
    runner_->initialise();
  } else if (state_.averaged) {
    runner_->set_averaged(*state_.averaged);
  } else {
    runner_->start_average();
  }
  state_.facts = facts;
  state_.changes = static_cast<int64_t>(changes_->applied());
  state_.micro_batches = p_.micro_batches;
  runner_->set_state(state_.updates, state_.loss_scale);
  if (world_.first()) output_ = std::make_unique<Output>(config_, state_.step);
  if (world_.first() && p_.samples)
    parameters_.emplace(config_.model, p_.sampler, loras_in_samples(p_.registry, config_.model, p_.model));
  compare_ranks();
  started_ = true;
}

MicroBatch Trainer::micro_batch(int64_t index) {
  if (const int64_t later = index + read_ahead; later < config_.train.steps * p_.micro_batches)
    maker_.will_need(p_.order->at(later), later);
  const Batch& batch = p_.order->at(index);
  const StepShape shape = p_.shapes->of(batch);
  return {p_.plan->steps.at(shape).get(), maker_.make(batch, shape, index)};
}

void Trainer::enqueue(int64_t step) {
  runner_->enqueue(changes_->rates(step), [&](int64_t micro) { return micro_batch(step * p_.micro_batches + micro); });
}

void Trainer::report_non_finite(int64_t step, const MicroBatch& batch, const std::string& what) {
  const FirstNonFinite here =
      batch.step != nullptr ? find_non_finite(p_.device, *batch.step, batch.inputs) : FirstNonFinite{};
  const auto first = [](const std::vector<std::string>& found) {
    const auto said = std::ranges::find_if(found, [](const std::string& one) { return !one.empty(); });
    return said == found.end() ? "" : *said;
  };
  const std::string op = first(world_.gather(here.op));
  const std::string damage = first(world_.gather(p_.model.checkpoint().damage_in(here.weights)));
  if (!damage.empty())
    fail(Code::data, "step {}: {} is not finite; nothing of this step was applied.\n  {}", step + 1, what, damage);
  fail(
      Code::numeric,
      "step {}: {} is not finite; nothing of this step was applied.\n  first op with a NaN or infinity: {}\n  the last "
      "checkpoint is untouched. Try a lower train.lr{}",
      step + 1, what, op.empty() ? "none: the gradient norm overflowed" : op,
      p_.compute == DType::f16    ? ", or train.dtype: bf16 or fp32"
      : p_.compute == DType::bf16 ? ", or train.dtype: fp32"
                                  : "");
}

double Trainer::collect(int64_t step) {
  StepResult result = runner_->collect();
  grad_norm_ = result.grad_norm;
  state_.updates = result.updates;
  if (p_.plan->ema) state_.averaged = result.averaged;
  if (p_.compute == DType::f16) state_.loss_scale = result.loss_scale;
  if (!std::isfinite(result.loss)) report_non_finite(step, result.last, "the loss");
  if (!std::isfinite(result.grad_norm)) {
    ++skipped_;
    if (p_.compute != DType::f16 || ++skipped_in_a_row_ > most_skipped_in_a_row)
      report_non_finite(step, result.last, "the gradient");
  } else {
    skipped_in_a_row_ = 0;
  }
  return result.loss;
}

bool Trainer::boundary_after(int64_t step) const {
  return step + 1 == config_.train.steps || save_due(step + 1) || samples_due(step + 1) || validation_due(step + 1);
}

bool Trainer::samples_due(int64_t step) const {
  const SampleConfig& sample = config_.sample;
  return p_.samples && step >= sample.sample_start_step &&
         (every(step, sample.sample_every) || p_.epochs_end(step, sample.sample_every_n_epochs));
}

bool Trainer::save_due(int64_t step) const {
  return every(step, config_.save.save_every) || p_.epochs_end(step, config_.save.save_every_n_epochs);
}

bool Trainer::validation_due(int64_t step) const {
  if (!p_.validation) return false;
  const TrainSection& train = config_.train;
  const bool by_steps = train.validate_every_n_steps > 0;
  return step == train.steps || every(step, train.validate_every_n_steps) ||
         p_.epochs_end(step,
                       by_steps ? train.validate_every_n_epochs : std::max<int64_t>(train.validate_every_n_epochs, 1));
}

double Trainer::validate() {
  double sum = 0;
  for (const Sample& sample : p_.dataset.validation) {
    const StepShape shape = p_.validation_shape(sample);
    for (int64_t level = 0; level < validation_levels; ++level)
      sum += p_.validation->loss(shape, maker_.validation(sample, shape, level));
  }
  return sum / static_cast<double>(validation_levels * static_cast<int64_t>(p_.dataset.validation.size()));
}

// A step is one transaction, which its state opens: metrics up to it are on disk before; its LoRA and samples come
// after, and are made on resuming where they are missing.
std::filesystem::path Trainer::save(int64_t step, bool final) {
  if (!apart_) compare_ranks();
  note_choices();
  const WholeChange whole;
  state_.step = step;
  state_.settings = changes_->settings().text();
  state_.changes = static_cast<int64_t>(changes_->applied());
  if (!final) state_.saves.insert(step);
  if (!world_.first()) {
    on_disk_ = step;
    return {};
  }
  if (!folder_->there()) leave_lost_folder();
  output_->sync_metrics();
  save_state(config_.output_dir() / "state", state_, *p_.plan->adapters, runner_->update(),
             config_.save.max_step_saves_to_keep);
  on_disk_ = step;
  return write_lora(step, final);
}

std::filesystem::path Trainer::write_lora(int64_t step, bool final) {
  const WholeChange whole;
  runner_->refresh_shown();
  std::filesystem::path path = output_->lora(step, final, p_.plan->adapters->modules(p_.plan->adapters->shown()),
                                             p_.model.spec(), lora_metadata(p_, changes_->settings().train(), step));
  output_->prune_loras(state_.saves);
  Progress::make_room();
  log_info("saved {}", path.string());
  return path;
}

int Trainer::leave() {
  const std::string who = told_to_stop_ ? "by ctl" : "by a signal";
  if (state_.step == 0) {
    log_warning("stopped {} before the first step; continue with --resume", who);
    return exit_interrupted;
  }
  if (on_disk_ != state_.step) save(state_.step, false);
  log_warning("stopped {} after step {}; continue with --resume", who, state_.step);
  return exit_interrupted;
}

// Steps in flight count where they came to their end, before other processes were lost.
void Trainer::settle() {
  while (runner_->in_flight() > 0) try {
      collect(state_.step);
      ++state_.step;
    } catch (const RankLost&) {
    } catch (const Interrupted&) {
    }
}

// Every process has the same tensors, so the first one that is left saves for all: into the folder that it owns, or
// that nobody owns any more. The LoRA of the step is written on resuming.
void Trainer::rescue(const RankLost& lost) {
  apart_ = true;
  std::string where = "Another process of the run saves what there is";
  if (world_.rescues()) try {
      const WholeChange whole;
      settle();
      // Another process may have been lost while it wrote that.
      const std::filesystem::path file = config_.output_dir() / "state" / (state_name(state_.step) + ".safetensors");
      if (on_disk_ != state_.step || !std::filesystem::exists(file)) {
        if (!folder_) folder_.emplace(config_.output_dir());
        note_choices();
        state_.settings = changes_->settings().text();
        state_.changes = static_cast<int64_t>(changes_->applied());
        state_.saves.insert(state_.step);
        save_state(config_.output_dir() / "state", state_, *p_.plan->adapters, runner_->update(),
                   config_.save.max_step_saves_to_keep);
      }
      where = fmt::format("The state after step {} is saved: continue with --resume", state_.step);
    } catch (const Error& e) {
      where = fmt::format("What there is could not be saved: {}\nThe last checkpoint is whole; continue with --resume",
                          e.what());
    }
  throw RankLost(rank_lost, fmt::format("{}. {}", lost.what(), where));
}

void Trainer::compare_ranks() const {
  if (world_.alone_here()) return;
  const Adapters& adapters = *p_.plan->adapters;
  const AdapterTensor all = adapters.whole();
  const auto* const p = static_cast<const std::byte*>(adapters.at("p", all));
  std::vector<std::byte> part(static_cast<size_t>(std::min<int64_t>(all.bytes(), 64 << 20)));
  Sha256 hash;
  for (int64_t at = 0; at < all.bytes(); at += static_cast<int64_t>(part.size())) {
    const int64_t bytes = std::min(static_cast<int64_t>(part.size()), all.bytes() - at);
    p_.device.check(lk_download(p_.device.context(), part.data(), p + at, bytes), "trained tensors");
    hash.update(std::span(part).first(static_cast<size_t>(bytes)));
  }
  require_same_weights(world_, hash.hex(), state_.step);
}

void Trainer::finish_resumed_step() {
  const int64_t step = state_.step;
  if (on_disk_ != step || step >= config_.train.steps) return;  // the end of a run is made again anyway
  if (world_.first() && state_.saves.contains(step)) write_lora(step, false);
  if (step > 0 && samples_due(step)) make_samples(step, true);
}

void Trainer::leave_lost_folder() {
  if (!world_.first()) {
    world_.meet();
    fail(Code::output_lost, "the output folder was deleted or moved away: the first process of the run says the rest");
  }
  const std::filesystem::path rescued = config_.output_dir().string() + ".rescued";
  std::string where;
  try {
    save_state(rescued / "state", state_, *p_.plan->adapters, runner_->update(), config_.save.max_step_saves_to_keep);
    where = fmt::format("The state of step {} is in {}: go on with --resume {}", state_.step, rescued.string(),
                        rescued.string());
  } catch (const Error& e) {
    where = fmt::format("The state of step {} could not be saved either: {}", state_.step, e.what());
  }
  if (!apart_) world_.meet();
  fail(Code::output_lost, "{}: the folder was deleted or moved away while the run wrote there. {}",
       config_.output_dir().string(), where);
}

int Trainer::run() {
  if (!started_) return leave();
  try {
    finish_resumed_step();
    return run_steps();
  } catch (const Interrupted&) {  // what was being computed is of no use, what is done is whole
    apart_ = !world_.alone_here();
    settle();
    const int status = leave();
    world_.leave_apart();
    return status;
  } catch (const RankLost& lost) {
    rescue(lost);
  }
}

int Trainer::run_steps() {
  const int64_t steps = config_.train.steps;
  const bool sampling = p_.samples && (config_.sample.sample_every > 0 || config_.sample.sample_every_n_epochs > 0);
  if (p_.samples && config_.sample.sample_at_start && state_.step == 0) make_samples(0);
  agree();
  if (stopping_) return leave();  // the images of this step are made on resuming
  if (world_.first()) listen();
  std::optional<Progress> progress;
  if (world_.first()) progress.emplace(config_.name, steps, state_.step);
  // Steps up to `launched` are on the device, up to `step` their results are known.
  int64_t launched = state_.step;
  for (int64_t step = state_.step; step < steps; ++step) {
    if (launched == step && !at_border(step)) {
      progress.reset();
      return leave();
    }
    const int64_t ahead = p_.device.is_cpu() ? 1 : StepRunner::most_in_flight;
    const auto goes_on = [&](int64_t after) {  // without a look at what step `after` gave
      return !boundary_after(after - 1) && !changes_->due(after) && undisturbed();
    };
    while (launched < std::min(steps, step + ahead) && (launched == step || goes_on(launched))) enqueue(launched++);
    loss_ = collect(step);
    const int64_t done = step + 1;
    state_.step = done;
    const double lr = changes_->rate(step);
    std::optional<double> validation_loss;
    if (validation_due(done) && (output_ || p_.shares_base())) validation_loss = validate();
    if (output_)
      output_->metrics(done, {.loss = loss_, .lr = lr, .grad_norm = grad_norm_, .validation_loss = validation_loss});
    if (progress) progress->update(done, training_details(loss_, lr, p_.device.peak() >> 20));
    agree();
    if (folder_lost_ && launched == done) leave_lost_folder();
    if (stopping_ && launched == done) {
      progress.reset();
      return leave();
    }
    if (done == steps) break;
    if (save_due(done))
      save(done, false);
    else if (done % steps_between_comparisons == 0)
      compare_ranks();
    if (samples_due(done)) {
      make_samples(done);
      agree();
      if (stopping_) return leave();
    }
  }
  progress.reset();
  control_.reset();
  save(steps, true);  // before the last samples: an image that fails loses nothing
  if (output_) output_->loss_curve();
  if (sampling) {
    make_samples(steps);
    agree();
    if (stopping_) return leave();
  }
  if (!world_.first()) return 0;
  std::vector<std::string> prompts;
  for (const SampleRequest& request : p_.requests) prompts.push_back(request.prompt);
  if (const auto grid = output_->comparison(steps, prompts)) fmt::print("images      {}\n", grid->string());
  if (skipped_ > 0) log_info("{} steps were skipped by loss scaling", skipped_);
  if (verbose("time") && world_.alone_here())
    print(p_.plan->steps.begin()->second->program().time_ops());  // one more step, after the save
  if (verbose("memory"))
    log_info("memory: planned {} MiB, peak {} MiB", p_.plan->memory.total() >> 20, p_.device.peak() >> 20);
  return 0;
}

}  // namespace lh
