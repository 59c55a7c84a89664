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
  make_samples(*p_.samples, wanted, [&](size_t i, const Sampled& one) { output_->sample(step, numbers[i], one); });
}

void Trainer::make_samples(SampleSet& denoisers, const std::vector<SampleRequest>& requests,
                           const std::function<void(size_t index, const Sampled& sampled)>& write) {
  runner_->refresh_shown();
  if (p_.live_text) p_.live_text->encode(prompts_of(requests, p_.model.recipe()));
  const Graph& graph = p_.plan->largest().graph;
  // Nobody reads another's weights while they change.
  const auto change = [&](auto use) {
    if (!p_.loras.differ()) return;
    if (p_.shares_base()) world_.meet();
    use();
    if (p_.shares_base()) world_.meet();
  };
  const auto for_training = [&] { p_.loras.use_for_training(p_.device, *weights_, graph); };
  change([&] { p_.loras.use_for_samples(p_.device, *weights_, graph); });
  // Whose parts of the weights others need does not stop while they go on.
  const auto stop = [this] { return !p_.shares_base() && stop_requested(); };
  const auto make = [&] {
    for (size_t i = 0; i < requests.size() && !stop(); ++i) {
      const SampleRequest& request = requests[i];
      const HostTensor latents =
          denoisers.denoise(request, p_.text, p_.images.make(request.images, request.cut(), request.posterior()), stop);
      if (world_.first() && !stop()) write(i, p_.samples->decode(request, latents));
    }
  };
  try {
    make();
  } catch (...) {  // the run may go on
    if (p_.loras.differ()) for_training();
    throw;
  }
  change(for_training);
}

}  // namespace lh
