/* The time of a kernel call, in two ways. "us" is the device's: the call is recorded many times, with its copies in
 * turn, and the recording replayed between two events; what the host does for a call is then not in it. "us alone" is
 * what a program sees that waits after each call. Both are medians. On the CPU, which records nothing, "us" is calls
 * made one after the other.
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

enum { SAMPLES = 9, ALONE_SAMPLES = 31, MOST_ROUNDS = 1024, RECORDED_ROUNDS = 16 };
static const double sample_seconds = 0.1; /* at least, in the "alone" time, which is the longer one */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

static void run_rounds(bench* b, const timed_call* call, int rounds) {
  int i;
  for (i = 0; i < rounds * COPIES; ++i) check(b, call->run(b->context, call->copies, i % COPIES));
}

/* Lends the workspace that the call needs: a recording keeps its address. */
static void lend_workspace(bench* b, const timed_call* call) {
  int64_t bytes = 0;
  check(b, lk_measure_begin(b->context));
  run_rounds(b, call, 1);
  check(b, lk_measure_end(b->context, &bytes));
  if (bytes > 0) check(b, lk_set_workspace(b->context, memory(b, bytes), bytes));
}

/* NULL where the backend records nothing. */
static lk_graph* record_rounds(bench* b, const timed_call* call, int rounds) {
  lk_graph* graph = NULL;
  const lk_status status = lk_capture_begin(b->context);
  if (status == LK_E_UNSUPPORTED) return NULL;
  check(b, status);
  run_rounds(b, call, rounds);
  check(b, lk_capture_end(b->context, &graph));
  return graph;
}

static double time_alone(bench* b, const timed_call* call) {
  double samples[ALONE_SAMPLES];
  int i;
  for (i = 0; i < ALONE_SAMPLES; ++i) {
    const double start = seconds();
    check(b, call->run(b->context, call->copies, i % COPIES));
    check(b, lk_synchronize(b->context));
    samples[i] = seconds() - start;
  }
  return median(samples, ALONE_SAMPLES);
}

static double time_rounds(bench* b, const timed_call* call, int rounds) {
  const int recorded = rounds < RECORDED_ROUNDS ? rounds : RECORDED_ROUNDS, replays = rounds / recorded;
  lk_graph* const graph = record_rounds(b, call, recorded);
  lk_event *start = NULL, *end = NULL;
  double samples[SAMPLES];
  int i, replay;
  check(b, lk_event_create(b->context, &start));
  check(b, lk_event_create(b->context, &end));
  for (i = 0; i < SAMPLES; ++i) {
    float milliseconds = 0;
    check(b, lk_event_record(b->context, start, LK_COMPUTE));
    for (replay = 0; replay < replays; ++replay) {
      if (graph != NULL)
        check(b, lk_graph_launch(b->context, graph));
      else
        run_rounds(b, call, recorded);
    }
    check(b, lk_event_record(b->context, end, LK_COMPUTE));
    check(b, lk_event_finish(b->context, end));
    check(b, lk_event_elapsed(b->context, start, end, &milliseconds));
    samples[i] = 1e-3 * (double)milliseconds / (replays * recorded * COPIES);
  }
  lk_event_destroy(b->context, start);
  lk_event_destroy(b->context, end);
  lk_graph_destroy(b->context, graph);
  return median(samples, SAMPLES);
}

static int rounds_for(double call_seconds) {
  const double rounds = sample_seconds / (COPIES * call_seconds);
  return rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : (int)rounds;
}

void print_header(void) {
  printf("%-26s %-34s %-4s %10s %10s %9s %9s\n", "call", "shape", "type", "us", "us alone", "GB/s", "TFLOP/s");
}

void print_times(bench* b, const timed_call* call) {
  double alone, each;
  lend_workspace(b, call);
  run_rounds(b, call, 1); /* makes plans and times algorithms, which neither time should have in it */
  check(b, lk_synchronize(b->context));
  alone = time_alone(b, call);
  each = time_rounds(b, call, rounds_for(alone));
  check(b, lk_set_workspace(b->context, NULL, 0));
  printf("%-26s %-34s %-4s %10.1f %10.1f %9.0f %9.2f\n", call->name, call->shape, lk_dtype_name(call->dtype),
         1e6 * each, 1e6 * alone, 1e-9 * call->bytes / each, 1e-12 * call->flops / each);
  fflush(stdout);
}
