/* What the driver of the crash test (support/fault_server.h) and the library that it preloads into lora-host
   (shims/faults.c) say to each other. C and C++. */
#pragma once

#include <stdint.h>

/* Calls that are counted, where they concern the watched folder. SPACE: may want room on the disk. DATA: has a count of
   bytes, which may come out short. */
enum fault_class { FAULT_LOOK = 0, FAULT_SPACE = 1, FAULT_DATA = 2 };
#define FAULT_CALLS(X)                \
  X(stat, FAULT_LOOK)                 \
  X(access, FAULT_LOOK)               \
  X(statvfs, FAULT_LOOK)              \
  X(opendir, FAULT_LOOK)              \
  X(readdir, FAULT_LOOK)              \
  X(open, FAULT_LOOK)                 \
  X(create, FAULT_SPACE)              \
  X(read, FAULT_DATA)                 \
  X(pread, FAULT_DATA)                \
  X(write, FAULT_SPACE | FAULT_DATA)  \
  X(pwrite, FAULT_SPACE | FAULT_DATA) \
  X(fallocate, FAULT_SPACE)           \
  X(ftruncate, FAULT_LOOK)            \
  X(fsync, FAULT_SPACE)               \
  X(close, FAULT_LOOK)                \
  X(flock, FAULT_LOOK)                \
  X(rename, FAULT_SPACE)              \
  X(link, FAULT_SPACE)                \
  X(unlink, FAULT_LOOK)               \
  X(mkdir, FAULT_SPACE)               \
  X(chmod, FAULT_LOOK)                \
  X(bind, FAULT_SPACE)

enum fault_call {
#define FAULT_CALL_NAME(name, flags) fault_on_##name,
  FAULT_CALLS(FAULT_CALL_NAME)
#undef FAULT_CALL_NAME
      fault_call_count
};

/* What happens at the call. Of the last three the tests of the driver see that it notices them: a write that claims to
   have been done, a crash, a hang. */
enum fault_action {
  fault_none,
  fault_kill,  /* the whole group of processes, before the call */
  fault_tear,  /* half of a write, then the same */
  fault_fail,  /* `error`, once */
  fault_stuck, /* `error`, from this call on; ENOSPC: for calls that want room */
  fault_short, /* half of the bytes */
  fault_alloc, /* the nth allocation of memory gives NULL */
  fault_alloc_stuck,
  fault_lie,
  fault_crash,
  fault_hang
};

/* One for each request, written by the driver to the server's standard input; the words of the command line follow,
   each with its NUL. The answers: int32_t process id, then its int32_t wait status. */
struct fault_request {
  int32_t action, error;
  int64_t nth; /* from 0 */
  uint32_t word_count, word_bytes;
  char folder[256]; /* watched, with everything below it */
  char log[256];    /* takes stdout and stderr */
};

enum { fault_most_calls = 1 << 16 };

/* Memory that all of them share. */
struct fault_shared {
  int64_t calls, allocations;
  int64_t fired;                   /* how often a fault was injected */
  char place[512];                 /* the first: "rename /folder/file" */
  uint8_t kinds[fault_most_calls]; /* fault_call of each call */
};
