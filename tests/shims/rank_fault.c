// Preloaded into one process of a run of several (mpi_test.sh): a signal that it sends to itself when it publishes a
// file, or weights that become other ones.
//
//   RANK_FAULT_RANK    of the process; the others do nothing
//   RANK_FAULT_PATH    part of the path of the file, and RANK_FAULT_SIGNAL the signal (9: killed, 19: hangs)
//   RANK_FAULT_UPDATE  before which update (from 1) a gradient changes
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lora_kernels.h"

#define REAL(result, name, ...)       \
  static result (*real)(__VA_ARGS__); \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, name)

static int concerned(void) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  const char* wanted = getenv("RANK_FAULT_RANK");
  return rank != NULL && wanted != NULL && strcmp(rank, wanted) == 0;
}

int rename(const char* from, const char* to) {
  REAL(int, "rename", const char*, const char*);
  const char* part = getenv("RANK_FAULT_PATH");
  if (part != NULL && concerned() && strstr(to, part) != NULL) raise(atoi(getenv("RANK_FAULT_SIGNAL")));
  return real(from, to);
}

lk_status lk_clip_grad_norm(lk_context* context, const lk_clip_grad_norm_params* params) {
  REAL(lk_status, "lk_clip_grad_norm", lk_context*, const lk_clip_grad_norm_params*);
  static int updates = 0;
  const char* wanted = getenv("RANK_FAULT_UPDATE");
  // Where the memory of a step is measured there is none yet.
  if (wanted != NULL && concerned() && (size_t)params->gradients[0].data > 1 << 24 && ++updates == atoi(wanted))
    ((float*)params->gradients[0].data)[0] += 1.0f;
  return real(context, params);
}
