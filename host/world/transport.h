// What a way between processes has to be able to do. Everything is called from one thread (peers.h), and nothing waits:
// what hangs is seen by who calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lh {

// Bytes for each rank, or from each: a rank's piece is bytes[r] long and begins at[r] bytes into the data.
struct Pieces {
  std::vector<std::byte> data;
  std::vector<int64_t> at, bytes;
};

struct Parcel {
  Pieces out, in;  // `in` has its sizes before anything arrives
};

// Sent to every other rank about once a second.
struct Beat {
  int32_t from = 0;
  int32_t ended = 0;      // the exit status with which the rank leaves, where it leaves alone
  int32_t stop = 0;       // signals that asked it to stop: 1 = stop, 2 = hurry
  int32_t rescued = 0;    // it has saved what it has, after another one was lost
  int64_t exchanges = 0;  // that it has begun
  int64_t done = 0;       // of work that is shared, for a progress bar
};

// Throws std::runtime_error where the library says that it cannot go on.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string library() const = 0;  // "Open MPI 4.1.4"

  // All ranks exchange in the same order, one parcel at a time. It has to live until arrived() says so.
  virtual void start(Parcel& parcel) = 0;
  virtual bool arrived() = 0;

  virtual void send(int to, const Beat& beat) = 0;  // left out while the one before is on its way
  virtual bool receive(Beat& beat) = 0;             // one that has come; false: there is none
  virtual void close() = 0;                         // all ranks; the last call
};

}  // namespace lh
