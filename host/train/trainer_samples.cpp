// Samples of a run: by the first process, or by all where each has a part of the weights.
#include <fmt/ranges.h>

#include <iterator>
#include <sstream>

#include "core/signals.h"
#include "train/trainer.h"

namespace lh {

void Trainer::make_samples(int64_t step, bool only_missing) {
  if (!world_.first() && !p_.shares_base()) return;
  std::vector<size_t> numbers;
  for (size_t i = 0; world_.first() && i < p_.requests.size(); ++i)
    if (!only_missing || !output_->has_sample(step, i)) numbers.push_back(i);
  if (p_.shares_base()) {
    std::istringstream agreed(world_.of_first(fmt::format("{}", fmt::join(numbers, " "))));
    numbers.assign(std::istream_iterator<size_t>(agreed), {});
  }
  if (numbers.empty()) return;
  std::vector<SampleRequest> wanted;
  for (const size_t i : numbers) wanted.push_back(p_.requests.at(i));
  make_samples(*p_.samples, step, wanted,
               [&](size_t i, const Sampled& one) { output_->sample(step, numbers[i], one); });
}

std::string Trainer::parameters_of(const SampleRequest& request, int64_t step) const {
  GenerationParameters::Fields more{{"LoRA", config_.name}, {"Training step", fmt::format("{}", step)}};
  if (request.strength != 1) more.emplace_back("LoRA strength", fmt::format("{}", request.strength));
  return parameters_->text(request, p_.model.recipe(), more);
}

void Trainer::make_samples(SampleSet& denoisers, int64_t step, const std::vector<SampleRequest>& requests,
                           const std::function<void(size_t index, const Sampled& sampled)>& write) {
  runner_->refresh_shown();
  if (p_.live_text) p_.live_text->encode(prompts_of(requests, p_.model.recipe()));
  const Graph& graph = p_.plan->largest().graph;
  // Nobody reads another's weights while they change.
  const auto change = [&](auto use) {
    if (p_.shares_base()) world_.meet();
    use();
    if (p_.shares_base()) world_.meet();
  };
  const bool changes = p_.loras.differ() || !p_.experts.shares().empty();
  const auto for_training = [&] {
    p_.experts.use(p_.experts.own(), p_.device, *weights_, graph);
    if (p_.loras.differ()) p_.loras.use_for_training(p_.device, *weights_, graph);
  };
  if (p_.loras.differ()) change([&] { p_.loras.use_for_samples(p_.device, *weights_, graph); });
  // Whose parts of the weights others need does not stop while they go on.
  const auto stop = [this] { return !p_.shares_base() && stop_requested(); };
  const SampleCalls calls{
      .images = [&](const SampleRequest& one) { return p_.images.make(one.images, one.cut(), one.posterior()); },
      .stop = stop,
      .use = [&](size_t share) { change([&] { p_.experts.use(share, p_.device, *weights_, graph); }); },
      .made =
          [&](size_t i, const HostTensor& latents) {
            if (!world_.first()) return;
            Sampled sampled = p_.samples->decode(requests[i], latents);
            sampled.parameters = parameters_of(requests[i], step);
            write(i, sampled);
          }};
  try {
    denoisers.denoise(requests, p_.text, calls);
  } catch (...) {  // the run may go on
    if (changes) for_training();
    throw;
  }
  if (changes) change(for_training);
}

}  // namespace lh
