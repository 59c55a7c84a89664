// lora-host with a fault in one of its system calls or allocations, from a process that is loaded once
// (tests/shims/faults.c).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shims/faults.h"

namespace lh::test {

struct Fault {
  int32_t action = fault_none;
  int32_t error = 0;         // of fault_fail and fault_stuck
  int64_t nth = 0;           // call or allocation, from 0
  std::string text() const;  // "EIO at call 17"
};

struct FaultedRun {
  int code = -1;  // exit code; -1: a signal ended it
  int signal = 0;
  bool hung = false;  // it was still there when time was up, and was killed
  bool fired = false;
  std::string place;           // where the fault was: "rename /folder/file"
  std::vector<uint8_t> calls;  // fault_call of each
  int64_t allocations = 0;
  std::string output;
};

class FaultServer {
 public:
  // Calls that concern `watched` are counted. The process runs on one processor; `environment` is added to this one's.
  FaultServer(std::filesystem::path watched, std::vector<std::string> environment);
  ~FaultServer();
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;
  FaultedRun run(const std::vector<std::string>& arguments, const Fault& fault, double seconds);

 private:
  bool read_answer(void* data, size_t size, double seconds);
  std::filesystem::path watched_, scratch_;  // scratch_: what is of the driver, and not counted
  fault_shared* shared_ = nullptr;
  int requests_ = -1, answers_ = -1;
  pid_t id_ = -1;
};

const char* fault_call_name(uint8_t call);
int fault_call_class(uint8_t call);

}  // namespace lh::test
