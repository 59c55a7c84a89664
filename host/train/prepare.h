// Everything of a run that is known before the first step: model, data, graphs, memory plan.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "plugin/model.h"
#include "plugin/optimizer.h"
#include "run/device.h"
#include "sample/sampling.h"
#include "train/batches.h"
#include "train/latent_encoding.h"
#include "train/step.h"
#include "train/text_encoding.h"

namespace lh {

struct MemoryReport {
  int64_t weights = 0, adapters = 0, activations = 0;
  int64_t total() const { return weights + adapters + activations; }
};

DType compute_dtype(const std::string& name);  // "bf16", "fp16", "fp32" and their long names

// The caption that stands in for a dropped one.
inline constexpr const char* dropped_caption = "";

struct Prepared {
  Prepared(const Registry& registry, const Config& config);

  const Config& config;
  Device device;
  Model model;
  Optimizer optimizer;
  DType compute;
  AdapterSelection selection;
  TextEncoding text;
  LatentEncoding latents;
  Dataset dataset;
  std::vector<SampleRequest> requests;  // one for each sample prompt
  std::map<Bucket, std::unique_ptr<TrainStep>> steps;
  std::unique_ptr<Denoiser> denoiser;  // for samples; none when no sample is asked for
  std::unique_ptr<Adapters> adapters;  // shapes only until memory is taken
  MemoryReport memory;
  std::string report() const;  // what --dry-run prints

 private:
  void compile(double recompute);
  void fit_memory();
};

}  // namespace lh
