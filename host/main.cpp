// lora-host: trains LoRA adapters for diffusion models.
//
// A run is a list of passes, and this is the way through the house:
//   main            load plugins, parse the command line and the configuration         cli/options, config/
//   run_train       prepare, train                                                      cli/train
//   Prepared        open the checkpoint, scan the dataset, compile graphs, plan memory  train/prepare
//   compile         build -> adapt (LoRA) -> differentiate -> recompute -> prune        compile/, passes/, ops/
//   plan_memory     one arena, every buffer placed before a byte is taken               run/plan
//   Trainer         load weights, then the steps: assemble, run, clip, update, save     train/trainer
//   Program::run    one kernel call for each node                                       run/program, kernels/
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <system_error>

#include "cli/commands.h"
#include "cli/environment.h"
#include "core/error.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/signals.h"
#include "world/world.h"

namespace {

int report(lh::Code code, const char* kind, const std::string& text) {
  lh::Progress::make_room();
  fmt::print(stderr, "lora-host: {}: {}\n", kind, text);
  return static_cast<int>(code);
}

constexpr int reader_gone = 141;  // as shells count a program that a closed pipe ended

// Standard output that nobody reads any more, or that has no room.
int output_lost(int error) {
  if (error == EPIPE) return reader_gone;
  return report(lh::Code::resource, "error",
                fmt::format("what was to be printed could not be written: {}. Free space where the output goes",
                            std::strerror(error)));  // NOLINT(concurrency-mt-unsafe): glibc's is safe
}

int run(int argc, char** argv) {
  try {
    lh::init_log();
    const lh::Options options = lh::parse_options(argc, argv);
    if (options.command == "print") {
      fmt::print("{}", options.text);
      return std::fflush(stdout) == 0 ? 0 : output_lost(errno);
    }
    static const std::map<std::string, int (*)(const lh::Options&)> commands{
        {"train", lh::run_train},     {"init", lh::run_init},
        {"check", lh::run_check},     {"watch", lh::run_watch},
        {"ctl", lh::run_ctl},         {"sample", lh::run_sample},
        {"plugins", lh::run_plugins}, {"inspect", lh::run_inspect},
        {"verify", lh::run_verify},   {"merge", lh::run_merge},
        {"convert", lh::run_convert}, {"extract", lh::run_extract},
        {"resize", lh::run_resize},   {"make-checkpoint", lh::run_make_checkpoint},
        {"bench", lh::run_bench},     {"plan", lh::run_plan}};
    if (lh::launched_with_others() && options.command != "train" && options.command != "bench")
      lh::fail(lh::Code::config,
               "`{}` is the work of one process: only `train` and `bench` are started as several (mpirun, srun)",
               options.command);
    // Of a training run only the files count.
    const int code = commands.at(options.command)(options);
    return code == 0 && options.command != "train" && std::fflush(stdout) != 0 ? output_lost(errno) : code;
  } catch (const lh::Interrupted& e) {
    report(lh::Code::config, "warning", std::string(e.what()) + " before there was something to save");
    return lh::exit_interrupted;
  } catch (const lh::Error& e) {
    return report(e.code(), "error", e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    return report(lh::Code::resource, "error",
                  fmt::format("{}: {}. Check that this user may use it", e.path1().string(), e.code().message()));
  } catch (const std::system_error& e) {
    if (std::ferror(stdout) != 0) return output_lost(e.code().value());
    return report(lh::Code::internal, "internal error", e.what());
  } catch (const std::bad_alloc&) {
    return report(
        lh::Code::resource, "error",
        "the machine has no memory left. Lower train.batch_size or datasets.resolution, or end other programs");
  } catch (const std::exception& e) {
    return report(lh::Code::internal, "internal error", e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  lh::fill_standard_streams();
  lh::sleep_when_idle(argv);
  lh::survive_write_signals();
  lh::install_crash_handlers();
  const int code = run(argc, argv);
  lh::expect_exit();
  return code;
}
