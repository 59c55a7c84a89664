// Is there a launcher, and the module that speaks its language.
#include <cstdlib>

#include "core/module.h"
#include "world/world.h"

namespace lh {
namespace {

constexpr const char* how_to_get = "Install libopenmpi-dev and openmpi-bin and build again (cmake finds them)";

bool more_than_one(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strtol(value, nullptr, 10) > 1;
}

#ifdef LORA_MPI
// With what it takes to save, a lost rank is over within 30 seconds.
double silence_seconds() {
  constexpr double usual = 20;
  const char* given = std::getenv("LORA_RANK_SECONDS");
  const double seconds = given == nullptr ? usual : std::strtod(given, nullptr);
  return seconds >= 1 && seconds <= 86400 ? seconds : usual;
}

std::unique_ptr<Transport> open_mpi() {
  // MPI's own plugins look for its symbols among those of the whole process.
  const auto open = reinterpret_cast<Transport* (*)()>(
      module_function({"world/mpi.so", "lora-host-mpi", Symbols::shared}, "lora_world_open"));
  return std::unique_ptr<Transport>(open());
}
#endif

}  // namespace

bool launched_with_others() {
  return more_than_one("OMPI_COMM_WORLD_SIZE") || more_than_one("PMI_SIZE") || more_than_one("SLURM_STEP_NUM_TASKS");
}

std::string world_library_text() {
#ifdef LORA_MPI
  return "MPI: " LORA_MPI;
#else
  return fmt::format("MPI: none, one process trains a run. {}", how_to_get);
#endif
}

std::unique_ptr<World> join_world() {
  const bool mpi = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
                   std::getenv("PMI_RANK") != nullptr;
  if (!mpi && launched_with_others())
    fail(Code::resource,
         "srun has started several processes that do not know of each other. Start them with srun --mpi=pmix, or "
         "--mpi=pmi2 (srun --mpi=list says what there is)");
  if (!mpi) return nullptr;
#ifdef LORA_MPI
  return world_over(open_mpi, silence_seconds());
#else
  if (!launched_with_others()) return nullptr;
  fail(Code::resource, "this process was started as one of several, and this lora-host was built without MPI. {}",
       how_to_get);
#endif
}

}  // namespace lh
