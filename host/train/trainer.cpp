// The loop: enqueue, collect, save, sample, and what happens when it is told to stop.
#include "train/trainer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/signals.h"
#include "run/lr_schedule.h"
#include "train/metadata.h"

namespace lh {
namespace {

constexpr int64_t most_skipped_in_a_row = 50;  // a loss scale that never settles is a fault of the run

std::string dataset_hash(const Dataset& dataset) {
  Sha256 hash;
  for (const Sample& s : dataset.samples) {
    for (const auto& [key, file] : s.images) hash.update(fmt::format("{}={};", key, file.content_hash));
    hash.update(fmt::format("{};{};{}x{};{};{};{}\n", s.image.content_hash, s.caption, s.bucket.width, s.bucket.height,
                            s.flip, s.repeats, s.caption_dropout_rate));
  }
  return hash.hex().substr(0, 16);
}

// Identifies the set of trained tensors.
std::string targets_hash(const Adapters& adapters) {
  Sha256 hash;
  for (const AdapterTensor& tensor : adapters.tensors()) hash.update(tensor.name + "\n");
  for (const AdaptedModule& module : adapters.adapted())
    if (module.rule != nullptr) hash.update(fmt::format("{} {} {}\n", module.name, module.rank, module.alpha));
  return hash.hex().substr(0, 16);
}

// Settings that decide what the next step computes; a run can only be continued with the same ones.
std::map<std::string, std::string> facts_of(const Prepared& p) {
  const Config& c = p.config;
  return {{"model", p.model.checkpoint().fingerprint("denoiser").substr(0, 16)},
          {"model.dtype", c.model.dtype},
          {"model.variant", p.model.recipe().variant},
          {"model.max_sequence_length", std::to_string(c.model.max_sequence_length)},
          {"network.type", c.network.type},
          {"network.network_kwargs options", p.adapter->options_text()},
          {"network.rank_dropout", fmt::format("{}", c.network.rank_dropout)},
          {"network.module_dropout", fmt::format("{}", c.network.module_dropout)},
          {"network.scale_weight_norms", fmt::format("{}", c.network.scale_weight_norms.value_or(0))},
          {"network.linear", std::to_string(c.network.linear)},
          {"network.linear_alpha",
           fmt::format("{}", c.network.linear_alpha.value_or(static_cast<double>(c.network.linear)))},
          {"network.conv", std::to_string(c.network.conv)},
          {"network.conv_alpha", fmt::format("{}", c.network.conv_alpha.value_or(static_cast<double>(c.network.conv)))},
          {"network.dropout", fmt::format("{}", c.network.dropout)},
          {"network.pretrained_lora_path", p.warm_start ? p.warm_start->fingerprint().substr(0, 16) : "none"},
          {"network.network_kwargs", targets_hash(*p.plan->adapters)},
          {"datasets", dataset_hash(p.dataset)},
          {"train.batch_size", std::to_string(c.train.batch_size)},
          {"train.gradient_accumulation", std::to_string(c.train.gradient_accumulation)},
          {"train.seed", std::to_string(c.train.seed)},
          {"train.dtype", std::string(dtype_name(p.compute))},
          {"objective", p.objective.text()},
          {"train.noise_offset", fmt::format("{}", c.train.noise_offset)},
          {"train.cfg_scale", fmt::format("{}", c.train.cfg_scale)},
          {"train.max_grad_norm", fmt::format("{}", c.train.max_grad_norm)},
          {"train.loss", c.train.loss}};
}

}  // namespace

Trainer::Trainer(Prepared& prepared, const std::string& resume)
    : p_(prepared),
      config_(prepared.config),
      folder_(prepared.config.output_dir()),
      order_(prepared.dataset, prepared.config.train.batch_size, static_cast<uint64_t>(prepared.config.train.seed)),
      maker_(prepared) {
  check_start(resume);
  load();
  if (!stop_requested()) start_or_resume();
}

void Trainer::check_start(const std::string& resume) {
  const std::filesystem::path own = config_.output_dir() / "state";
  if (resume == "auto")
    resume_from_ = own;
  else if (!resume.empty())
    resume_from_ = std::filesystem::is_directory(std::filesystem::path(resume) / "state")
                       ? std::filesystem::path(resume) / "state"
                       : std::filesystem::path(resume);
  std::error_code none;
  const bool from_own = !resume_from_.empty() && std::filesystem::equivalent(resume_from_, own, none);
  if (!from_own && !std::filesystem::is_empty(own))
    fail(Code::config, "{}: holds an earlier run. Continue it with --resume, or give the new run another `name`",
         config_.output_dir().string());
  if (!resume_from_.empty() && !from_own && !std::filesystem::is_directory(resume_from_))
    fail(Code::data, "--resume {}: expected the folder of a run, found {}", resume,
         std::filesystem::exists(resume_from_) ? "a file" : "nothing there");
  check_state(resume_from_, facts_of(p_));
  for (const char* kind : {"text", "latents"}) remove_leftovers(config_.training_folder / "cache" / kind);
}

void Trainer::load() {
  // Encoders first, each alone in memory; then the denoiser stays.
  p_.text.prepare(p_.prompts());
  p_.latents.prepare(p_.cuts());
  if (stop_requested()) return;

  weights_.emplace(p_.device, p_.model.checkpoint(), p_.plan->largest().graph);
  runner_.emplace(p_.device, *p_.plan, *weights_,
                  RunnerOptions{.accumulation = config_.train.gradient_accumulation,
                                .max_grad_norm = config_.train.max_grad_norm,
                                .loss_scaling = p_.compute == DType::f16});
  if (!p_.denoiser) return;
  p_.denoiser->bind(runner_->arena(), *weights_, p_.plan->adapters.get());
  p_.decoder->bind(runner_->arena());
  if (p_.live_text) p_.live_text->bind(runner_->arena(), *weights_, *p_.plan->adapters);
}

void Trainer::start_or_resume() {
  bool resumed = false;
  const auto facts = facts_of(p_);
  if (!resume_from_.empty()) {
    if (auto loaded = load_state(resume_from_, facts, *p_.plan->adapters, runner_->update())) {
      state_ = *loaded;
      resumed = true;
      if (state_.step > config_.train.steps)
        fail(Code::config,
             "train.steps: the run has {} steps behind it, {} were asked for. Raise train.steps to continue",
             state_.step, config_.train.steps);
      spdlog::info("resuming after step {}", state_.step);
    } else if (resume_from_ != config_.output_dir() / "state") {
      fail(Code::data, "{}: there is no valid checkpoint to resume from", resume_from_.string());
    } else {
      spdlog::info("no checkpoint in {}: starting at step 0", resume_from_.string());
    }
  }
  if (!resumed) {
    p_.plan->adapters->initialise(static_cast<uint64_t>(config_.train.seed),
                                  [this](const std::string& weight) { return p_.model.checkpoint().read_f32(weight); });
    if (p_.warm_start) p_.warm_start->apply(*p_.plan->adapters);
    runner_->update().initialise();
  }
  state_.facts = facts;
  runner_->set_state(state_.updates, state_.loss_scale);
  output_ = std::make_unique<Output>(config_, state_.step);
}

MicroBatch Trainer::micro_batch(int64_t index) {
  const Batch& batch = order_.at(index);
  const StepShape shape = p_.shapes->of(batch);
  return {p_.plan->steps.at(shape).get(), maker_.make(batch, shape, index)};
}

void Trainer::enqueue(int64_t step) {
  runner_->enqueue(learning_rates(config_.train, p_.plan->lr, step),
                   [&](int64_t micro) { return micro_batch(step * config_.train.gradient_accumulation + micro); });
}

void Trainer::report_non_finite(int64_t step, MicroBatch batch, const std::string& what) {
  const std::string op = find_non_finite(p_.device, *batch.step, batch.inputs);
  fail(
      Code::numeric,
      "step {}: {} is not finite; nothing of this step was applied.\n  first op with a NaN or infinity: {}\n  the last "
      "checkpoint is untouched. Try a lower train.lr, or train.dtype: bf16 or fp32",
      step + 1, what, op.empty() ? "none: the gradient norm overflowed" : op);
}

double Trainer::collect(int64_t step) {
  StepResult result = runner_->collect();
  grad_norm_ = result.grad_norm;
  state_.updates = result.updates;
  if (p_.compute == DType::f16) state_.loss_scale = result.loss_scale;
  if (!std::isfinite(result.loss)) report_non_finite(step, std::move(result.last), "the loss");
  if (!std::isfinite(result.grad_norm)) {
    ++skipped_;
    if (p_.compute != DType::f16 || ++skipped_in_a_row_ > most_skipped_in_a_row)
      report_non_finite(step, std::move(result.last), "the gradient");
  } else {
    skipped_in_a_row_ = 0;
  }
  return result.loss;
}

bool Trainer::boundary_after(int64_t step) const {
  const auto due = [&](int64_t every) { return every > 0 && (step + 1) % every == 0; };
  return step + 1 == config_.train.steps || due(config_.save.save_every) ||
         (p_.denoiser && due(config_.sample.sample_every));
}

void Trainer::save(int64_t step, bool final) {
  state_.step = step;
  save_state(config_.output_dir() / "state", state_, *p_.plan->adapters, runner_->update(),
             config_.save.max_step_saves_to_keep);
  if (p_.plan->update->evaluates()) runner_->update().evaluate();
  const std::filesystem::path path = output_->lora(step, final, p_.plan->adapters->modules(p_.plan->adapters->shown()),
                                                   p_.model.spec(), lora_metadata(p_, step));
  Progress::make_room();
  spdlog::info("saved {}", path.string());
}

void Trainer::make_samples(int64_t step) {
  if (p_.plan->update->evaluates()) runner_->update().evaluate();
  if (p_.live_text) p_.live_text->encode(prompts_of(p_.requests));
  for (size_t i = 0; i < p_.requests.size() && !stop_requested(); ++i) {
    const SampleRequest& request = p_.requests[i];
    const HostTensor latents =
        p_.denoiser->sample(request, p_.text, p_.images.make(request.images, request.bucket()), stop_requested);
    if (!stop_requested()) output_->sample(step, i, p_.decoder->decode(latents));
  }
}

int Trainer::run() {
  if (!output_) {
    spdlog::warn("stopped by a signal before the first step; continue with --resume");
    return exit_interrupted;
  }
  const int64_t steps = config_.train.steps, every = config_.sample.sample_every;
  if (p_.denoiser && config_.sample.sample_at_start && state_.step == 0) make_samples(0);
  Progress progress(config_.name, steps, state_.step);
  // Steps up to `launched` are on the device, up to `step` their results are known.
  int64_t launched = state_.step;
  for (int64_t step = state_.step; step < steps; ++step) {
    const int64_t ahead = p_.device.is_cpu() ? 1 : StepRunner::most_in_flight;
    while (launched < std::min(steps, step + ahead) && (launched == step || !boundary_after(launched - 1)) &&
           (launched == step || !stop_requested()))
      enqueue(launched++);
    const double loss = collect(step);
    const int64_t done = step + 1;
    const double lr = learning_rate(config_.train, config_.train.lr, step);
    output_->metrics(done, loss, lr, grad_norm_);
    progress.update(done, training_details(loss, lr, p_.device.peak() >> 20));
    if (stop_requested() && launched == done) {
      save(done, false);
      progress.finish();
      spdlog::warn("stopped by a signal after step {}; continue with --resume", done);
      return exit_interrupted;
    }
    if (done == steps) break;
    if (config_.save.save_every > 0 && done % config_.save.save_every == 0) save(done, false);
    if (p_.denoiser && every > 0 && done % every == 0) make_samples(done);
  }
  progress.finish();
  save(steps, true);  // before the last samples: an image that fails loses nothing
  output_->loss_curve();
  if (p_.denoiser && every > 0) make_samples(steps);
  if (const auto grid = output_->comparison(steps, config_.sample.prompts))
    fmt::print("images      {}\n", grid->string());
  if (skipped_ > 0) spdlog::info("{} steps were skipped by loss scaling", skipped_);
  if (verbose("time")) print(p_.plan->steps.begin()->second->program().time_ops());  // one more step, after the save
  if (verbose("memory"))
    spdlog::info("memory: planned {} MiB, peak {} MiB", p_.plan->memory.total() >> 20, p_.device.peak() >> 20);
  return 0;
}

}  // namespace lh
