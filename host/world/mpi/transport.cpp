// MPI: a module of its own, loaded only where a launcher has started several processes (world/join.cpp), so that the
// program runs on machines without MPI.
#include "world/transport.h"

#include <mpi.h>

#include <array>
#include <limits>
#include <stdexcept>

namespace {

constexpr int beat_tag = 17;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(text.data(), static_cast<size_t>(length)));
}

std::vector<int> narrow(const std::vector<int64_t>& values) {
  std::vector<int> out;
  for (const int64_t v : values) {
    if (v < 0 || v > std::numeric_limits<int>::max())
      throw std::runtime_error("a message of more than 2 GiB was asked for");
    out.push_back(static_cast<int>(v));
  }
  return out;
}

class Mpi final : public lh::Transport {
 public:
  Mpi() {
    int given = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
    // Threads that compute never call MPI, but they are there.
    if (given < MPI_THREAD_FUNNELED) throw std::runtime_error("this MPI does not allow threads");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &work_), "MPI_Comm_dup");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &beats_), "MPI_Comm_dup");
    for (MPI_Comm comm : {MPI_COMM_WORLD, work_, beats_}) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(work_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(work_, &size_), "MPI_Comm_size");
    sent_.resize(static_cast<size_t>(size_));
    sending_.assign(static_cast<size_t>(size_), MPI_REQUEST_NULL);
    listen();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
    const std::string all(text.data());
    return all.substr(0, all.find_first_of(",\n"));
  }

  void start(lh::Parcel& p) override {
    out_bytes_ = narrow(p.out.bytes);
    out_at_ = narrow(p.out.at);
    in_bytes_ = narrow(p.in.bytes);
    in_at_ = narrow(p.in.at);
    check(MPI_Ialltoallv(p.out.data.data(), out_bytes_.data(), out_at_.data(), MPI_BYTE, p.in.data.data(),
                         in_bytes_.data(), in_at_.data(), MPI_BYTE, work_, &exchange_),
          "MPI_Ialltoallv");
  }

  bool arrived() override {
    int done = 0;
    check(MPI_Test(&exchange_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

  void send(int to, const lh::Beat& beat) override {
    const auto i = static_cast<size_t>(to);
    int done = 0;
    check(MPI_Test(&sending_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return;
    sent_[i] = beat;
    check(MPI_Isend(&sent_[i], sizeof(lh::Beat), MPI_BYTE, to, beat_tag, beats_, &sending_[i]), "MPI_Isend");
  }

  bool receive(lh::Beat& beat) override {
    int done = 0;
    check(MPI_Test(&listening_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return false;
    beat = heard_;
    listen();
    return true;
  }

  void close() override {
    // Beats that are still on their way to a rank that reads no more are no reason to wait.
    MPI_Cancel(&listening_);
    MPI_Request_free(&listening_);
    for (MPI_Request& request : sending_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    check(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  void listen() {
    check(MPI_Irecv(&heard_, sizeof heard_, MPI_BYTE, MPI_ANY_SOURCE, beat_tag, beats_, &listening_), "MPI_Irecv");
  }

  MPI_Comm work_ = MPI_COMM_NULL, beats_ = MPI_COMM_NULL;
  MPI_Request exchange_ = MPI_REQUEST_NULL, listening_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<int> out_bytes_, out_at_, in_bytes_, in_at_;  // have to stay while an exchange is on its way
  std::vector<lh::Beat> sent_;
  std::vector<MPI_Request> sending_;
  lh::Beat heard_;
};

}  // namespace

extern "C" lh::Transport* lora_world_open() { return new Mpi; }
