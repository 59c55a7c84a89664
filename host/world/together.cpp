// Several processes, over a transport.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "world/world.h"

namespace lh {
namespace {

class Together final : public World {
 public:
  Together(const Peers::Open& open, double silence_seconds) : peers_(open, silence_seconds) {
    rank_ = peers_.rank();
    size_ = peers_.size();
    if (size_ == 1) return;
    const RankProcess own = RankProcess::own();
    std::vector<RankProcess> all;
    local_size_ = 0;
    for (const std::string& text : gather(fmt::format("{}\n{}\n{}\n{}", own.machine, own.host, own.pid, own.started))) {
      std::array<std::string, 4> lines;
      size_t at = 0;
      for (std::string& line : lines) {
        const size_t end = std::min(text.find('\n', at), text.size());
        line = text.substr(at, end - at);
        at = std::min(end + 1, text.size());
      }
      all.push_back({lines[0], lines[1], std::strtoll(lines[2].c_str(), nullptr, 10), lines[3]});
      if (all.back().machine != own.machine) continue;
      if (static_cast<int>(all.size()) <= rank_) ++local_rank_;
      ++local_size_;
    }
    peers_.know(std::move(all));
  }

  // Short texts travel with their sizes.
  std::vector<std::string> gather(const std::string& mine) override {
    constexpr size_t with_size = 56;
    const auto size = static_cast<int64_t>(mine.size());
    std::vector<std::byte> head(sizeof size + with_size);
    std::memcpy(head.data(), &size, sizeof size);
    std::memcpy(head.data() + sizeof size, mine.data(), std::min(mine.size(), with_size));
    const auto ranks = static_cast<size_t>(size_);
    const auto heads = to_all(head, std::vector<int64_t>(ranks, static_cast<int64_t>(head.size())));
    std::vector<int64_t> sizes(ranks);
    for (size_t r = 0; r < ranks; ++r) std::memcpy(&sizes[r], heads->data.data() + heads->at[r], sizeof size);
    std::vector<std::string> texts(ranks);
    if (std::ranges::all_of(sizes, [](int64_t s) { return s <= static_cast<int64_t>(with_size); })) {
      for (size_t r = 0; r < ranks; ++r)
        texts[r].assign(reinterpret_cast<const char*>(heads->data.data()) + heads->at[r] + sizeof size,
                        static_cast<size_t>(sizes[r]));
      return texts;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(mine.data());
    const auto bodies = to_all({bytes, bytes + mine.size()}, sizes);
    for (size_t r = 0; r < ranks; ++r)
      texts[r].assign(reinterpret_cast<const char*>(bodies->data.data()) + bodies->at[r],
                      static_cast<size_t>(sizes[r]));
    return texts;
  }

  void exchange(const std::shared_ptr<Parcel>& parcel, double limit) override { peers_.exchange(parcel, limit); }
  void look() const override { peers_.look(); }
  using World::done;
  void done(int64_t count) override {
    World::done(count);
    peers_.done(count);
  }
  int64_t done_by_all() const override { return peers_.done_by_all(); }
  std::string name(int rank) const override { return peers_.name(rank); }
  void finish() override {
    meet();
    peers_.close();
  }
  void leave(int status) override { peers_.leave(status); }
  bool rescues() const override { return peers_.rescues(); }
  void leave_apart() override { peers_.leave_apart(); }

 private:
  // The same bytes to every rank; gives those of each, of these sizes.
  std::shared_ptr<Pieces> to_all(std::vector<std::byte> mine, const std::vector<int64_t>& sizes) {
    auto parcel = std::make_shared<Parcel>();
    const auto ranks = static_cast<size_t>(size_);
    parcel->out.at.assign(ranks, 0);
    parcel->out.bytes.assign(ranks, static_cast<int64_t>(mine.size()));
    parcel->out.data = std::move(mine);
    parcel->in.bytes = sizes;
    int64_t total = 0;
    for (const int64_t size : sizes) {
      parcel->in.at.push_back(total);
      if (size < 0 || __builtin_add_overflow(total, size, &total))
        fail(Code::internal, "a rank sent a size of {}", size);
    }
    parcel->in.data.resize(static_cast<size_t>(total));
    exchange(parcel, 0);
    return {parcel, &parcel->in};  // owns the parcel, points into it
  }

  Peers peers_;
};

}  // namespace

std::unique_ptr<World> world_over(const Peers::Open& open, double silence_seconds) {
  return std::make_unique<Together>(open, silence_seconds);
}

}  // namespace lh
