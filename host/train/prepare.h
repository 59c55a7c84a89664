// Everything of a run that is known before the first step: model, data, graphs, memory plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/model_loras.h"
#include "compile/other_experts.h"
#include "compile/warm_start.h"
#include "config/config.h"
#include "config/dtype.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "data/run_captions.h"
#include "data/slider_prompts.h"
#include "diffusion/objective.h"
#include "encode/image_inputs.h"
#include "encode/latent_encoding.h"
#include "encode/live_text.h"
#include "encode/loss_masks.h"
#include "encode/sound_encoding.h"
#include "encode/text_encoding.h"
#include "plugin/adapter.h"
#include "plugin/model.h"
#include "run/device.h"
#include "run/known_rates.h"
#include "sample/sample_set.h"
#include "train/memory_planner.h"
#include "train/train_plan.h"
#include "train/validation.h"

namespace lh {

// Storage type of text encoders and VAE: float32 on the CPU, where they run once, and for training in float32; else
// bfloat16, which holds the range that some VAEs need.
DType encoder_dtype(const Device& device, DType compute);
// Memory that a run may use: of a GPU what is free now, less what the libraries load with their kernels.
int64_t memory_limit(const Config& config, const Device& device);

struct Prepared {
  // world: of the processes that train together.
  Prepared(const Registry& registry, const Config& config, World& world = World::alone());

  const Registry& registry;
  Config config;          // its train.steps as max_train_epochs makes them
  int64_t processes;      // that train together
  int processes_here;     // of these on this machine
  int64_t micro_batches;  // of a step, of all processes; a run that is resumed keeps its own
  Device device;
  Model model;
  ModelLoras loras;
  OtherExperts experts;  // in samples, where there are sample prompts
  DType compute;
  TrainingObjective objective;
  std::shared_ptr<const Adapter> adapter;
  AdapterSelection selection;
  PreservedPrompts preserved;
  SliderPrompts slider;
  TextEncoding text;
  Vae vae;
  LatentEncoding latents;
  std::optional<SoundEncoding> sound;  // of models that make it
  ImageInputs images;
  SeenFiles seen_images;
  Dataset dataset;
  SamplerChoice sampler;                // where there are sample prompts
  std::vector<SampleRequest> requests;  // one for each of them
  LossMasks masks;
  std::optional<BatchOrder> order;
  std::optional<RunCaptions> captions;
  std::optional<StepShapes> shapes;
  std::optional<TrainPlan> plan;
  Streaming streaming;                          // weights that stay in host memory
  int64_t limit = 0;                            // of device memory, bytes
  std::optional<WarmStart> warm_start;          // network.pretrained_lora_path
  std::unique_ptr<SampleSet> samples;           // none when no sample is asked for
  std::unique_ptr<ValidationSteps> validation;  // where images are set apart
  std::unique_ptr<LiveText> live_text;          // where samples are made and text encoders trained
  std::string report(bool whole);               // what --dry-run prints: a page, or everything
  bool masked() const;                          // some sample counts by its mask
  bool keeps_masked() const;                    // and where it does not, the model stays as it was
  bool counts_by_place() const;                 // by masks, or because the model is shown what some clips begin with;
                                                // no slider does
  bool shares_base() const { return config.memory.shard_base && processes > 1; }
  RunCourse course() const;
  uint64_t validation_seed() const;
  StepShape validation_shape(const Sample& sample);
  // Does a number of epochs end with this step, the first being 1?
  bool epochs_end(int64_t step, int64_t epochs) const;
  // A run that is resumed goes on with as many as it had.
  void use_micro_batches(int64_t count);
  // Other budgets for the same run. other: rates of another device than this run's.
  MemoryPlanner& memory_planner(const std::optional<KnownRates>& other = std::nullopt);
  // What has to be encoded before the first step.
  std::vector<Prompt> prompts() const;
  // A caption of a sample that is cut so, with the pictures that the text encoder is shown.
  Prompt shown(const Sample& sample, const std::string& caption, const ImageCut& cut) const;
  std::vector<ImageCut> cuts() const;

 private:
  World& world_;
  void settle_course();
  std::optional<KnownRates> rates_;       // when first asked for
  std::optional<MemoryPlanner> planner_;  // made when first asked for
  PlanOptions plan_options(const MemoryChoice& choice);
  const KnownRates& rates();
  void compile(const MemoryChoice& choice);
  void fit_memory();
  void fit();
  std::string report_data(bool whole) const;
};

}  // namespace lh
