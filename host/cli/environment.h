// What the process needs from its surroundings before anything else runs.
#pragma once

namespace lh {

// Lets idle OpenMP threads sleep instead of spinning, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT says otherwise. Spinning
// threads take the cores from whoever has work as soon as a machine is shared, and every parallel loop ends in such a
// wait. And OpenBLAS has one thread, unless OPENBLAS_NUM_THREADS says otherwise. Both libraries read the variables when
// they are loaded, so the program starts itself once more (same process id).
void sleep_when_idle(char** argv);

// Opens /dev/null for what of standard input, output and error is closed, as services are started: a file of the run
// would get that number, and what is printed would go into it.
void fill_standard_streams();

// A log pipe that closes or a file size limit must not kill a run: writing then fails with an error that has a name.
void survive_write_signals();

}  // namespace lh
