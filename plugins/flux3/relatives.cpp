// Models that share Flux.3's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace flux3 {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  const std::string end = "; LoRAs are trained on FLUX.3 image klein base";
  for (const char* part : {"early_stream_modulations.video", "late_stream_modulations.", "vector_in."})
    if (!w.first_with_prefix(part).empty())
      return std::string("this is a FLUX.3 model of video or actions (") + part + "*)" + end;
  // It is told where each step ends, which training by noise levels does not know and a schedule here does not say.
  if (!w.first_with_prefix("ref_time_in.").empty())
    return "this is FLUX.3 image klein, distilled into a flow map, which is also given the time that a step goes to "
           "(ref_time_in.*)" +
           end;
  return std::nullopt;
}

}  // namespace flux3
