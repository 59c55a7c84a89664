// What main() can be asked to do; each command is in the file of its name.
#pragma once

#include "cli/options.h"

namespace lh {

int run_train(const Options& options);
int run_init(const Options& options);
int run_check(const Options& options);
int run_watch(const Options& options);
int run_ctl(const Options& options);
int run_sample(const Options& options);
int run_plugins(const Options& options);
int run_inspect(const Options& options);
int run_verify(const Options& options);
int run_merge(const Options& options);
int run_convert(const Options& options);
int run_extract(const Options& options);
int run_resize(const Options& options);
int run_make_checkpoint(const Options& options);
int run_bench(const Options& options);
int run_plan(const Options& options);

}  // namespace lh
