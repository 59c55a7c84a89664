#include "cli/ranks.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "core/progress.h"
#include "core/signals.h"

namespace lh {

std::string device_of(const std::string& asked, const World& world) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool given_one =
      visible != nullptr && *visible != '\0' && std::string_view(visible).find(',') == std::string::npos;
  if (asked != "cuda" || world.local_size() == 1 || given_one) return asked;
  return fmt::format("cuda:{}", world.local_rank());
}

int run_together(const std::function<int(World&)>& work) {
  const std::unique_ptr<World> joined = join_world();
  World& world = joined ? *joined : World::alone();
  if (world.alone_here()) return work(world);
  // One process speaks for all; what ends another is told all the same.
  if (!world.first() && std::getenv("LORA_LOG") == nullptr) spdlog::set_level(spdlog::level::err);
  const auto own = [&](const Error& e) { return Error(e.code(), world.name(world.rank()) + ": " + e.what()); };
  try {
    return work(world);
  } catch (const RankLost& e) {
    // Said first: a launcher ends this process, too, soon after another one has left.
    Progress::make_room();
    fmt::print(stderr, "lora-host: error: {}\n", own(e).what());
    world.leave_apart();
    return static_cast<int>(e.code());
  } catch (const Interrupted&) {
    world.leave_apart();
    throw;
  } catch (const Error& e) {
    world.leave(static_cast<int>(e.code()));
    throw own(e);
  } catch (...) {
    world.leave(static_cast<int>(Code::resource));
    throw;
  }
}

}  // namespace lh
