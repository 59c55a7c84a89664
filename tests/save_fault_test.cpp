// Checkpoints and LoRA files whose writing fails or ends at any system call: the one before or the new one, whole.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <cerrno>
#include <cmath>

#include "io/lora_file.h"
#include "support/adapter_update.h"
#include "support/io_files.h"
#include "support/log.h"
#include "support/model_files.h"
#include "train/state.h"

namespace lh::test::save_fault_test {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> facts{{"train.seed", "42"}};

class SaveFault : public ::testing::Test {
 protected:
  SaveFault() {
    AdaptedModule module{.name = "blocks.0.qkv", .tensors = {}, .rank = 2, .alpha = 2};
    for (const auto& [key, shape] : {std::pair{down_key, Shape{2, 24}}, std::pair{up_key, Shape{72, 2}}})
      module.tensors.push_back({graph_.add_param(module.name + "." + key, {DType::f32, shape}), key});
    adapters_.emplace(graph_, std::vector{module});
    adapters_->allocate(device_);
    update_.emplace(device_, built_plugins(), *adapters_, "adamw");
  }
  ~SaveFault() override { set_fault_hook({}); }

  // Every tensor takes values that belong to the step.
  void fill(int64_t step) {
    for (const std::string& section : adapters_->sections())
      for (const AdapterTensor& t : adapters_->tensors()) adapters_->upload(section, t, counting(t.shape, value(step)));
    update_->fill([&](const Desc& desc) { return counting(desc.shape, value(step)); });
  }
  static float value(int64_t step) { return 100.0f * static_cast<float>(step); }

  void save(int64_t step) {
    fill(step);
    save_state(folder_, {.step = step, .loss_scale = {65536, 0}, .facts = facts}, *adapters_, **update_, 2);
  }
  // The step that resuming finds; its tensors must be that step's.
  int64_t found() {
    fill(77);
    const auto state = load_state({folder_}, facts, *adapters_, **update_);
    if (!state) return 0;
    for (const AdapterTensor& t : adapters_->tensors())
      EXPECT_EQ(adapters_->download("p", t).as<float>()[0], value(state->step)) << t.name;
    for (const StoredState& stored : (*update_)->states())
      EXPECT_EQ((*update_)->download(stored).as<float>()[0], value(state->step)) << stored.key;
    return state->step;
  }
  std::vector<std::string> calls(const std::function<void()>& write) {
    std::vector<std::string> names;
    set_fault_hook([&](const char* call) {
      names.emplace_back(call);
      return 0;
    });
    write();
    set_fault_hook({});
    return names;
  }
  int temps() const {
    int count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path())) count += entry.path().extension() == ".tmp";
    return count;
  }
  void start_again() {
    fs::remove_all(folder_);
    save(1);
    save(2);
  }
  // What a process does that is killed at call k.
  static void killed_at(size_t k, const std::function<void()>& write) {
    const pid_t child = ::fork();
    if (child == 0) {
      size_t call = 0;
      set_fault_hook([&](const char*) {
        if (call++ == k) ::_exit(9);
        return 0;
      });
      write();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 9) << "call " << k << " was not reached";
  }

  TempDir dir_;
  fs::path folder_ = dir_ / "state", lora_ = dir_ / "my.safetensors";
  Device device_{"cpu"};
  Graph graph_{DType::f32};
  std::optional<Adapters> adapters_;
  std::optional<AdapterUpdate> update_;
};

constexpr const char* yaml = R"(
components: {denoiser: {marker: blocks.0.qkv.weight, lora: {kohya: lora_unet_}}}
)";

TEST_F(SaveFault, StateFailsAtEveryCall) {
  start_again();
  const std::vector<std::string> names = calls([&] { save(3); });
  ASSERT_GE(names.size(), 8u);
  EXPECT_EQ(found(), 3);
  for (const bool persistent : {false, true})
    for (const int error : {ENOSPC, EIO})
      for (size_t k = 0; k < names.size(); ++k) {
        SCOPED_TRACE(names[k]);
        start_again();
        size_t call = 0;
        set_fault_hook([&](const char*) { return call++ == k || (persistent && call > k) ? error : 0; });
        try {
          save(3);
          ADD_FAILURE() << "the fault had no effect";
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), Code::resource);
          EXPECT_NE(std::string(e.what()).find("000000003.safetensors"), std::string::npos) << e.what();
        }
        set_fault_hook({});
        EXPECT_EQ(found(), names[k] == "fsync_dir" ? 3 : 2);
        EXPECT_EQ(temps(), 0);
        save(4);  // the disk is well again
        EXPECT_EQ(found(), 4);
      }
}

TEST_F(SaveFault, StateKilledAtEveryCall) {
  start_again();
  const std::vector<std::string> names = calls([&] { save(3); });
  for (size_t k = 0; k < names.size(); ++k) {
    SCOPED_TRACE(names[k]);
    start_again();
    killed_at(k, [&] { save(3); });
    EXPECT_EQ(found(), names[k] == "fsync_dir" ? 3 : 2);
    remove_leftovers(folder_);
    EXPECT_EQ(temps(), 0);
  }
}

TEST_F(SaveFault, LoraFailsOrIsKilledAtEveryCall) {
  const CheckpointSpec spec = CheckpointSpec::parse(yaml, "test");
  const auto write = [&](int64_t step) {
    fill(step);
    write_lora(lora_, adapters_->modules(), spec, "kohya", DType::f16, {});
  };
  const std::vector<std::string> names = calls([&] { write(2); });
  const std::string after = get(lora_);
  write(1);
  const std::string before = get(lora_);
  ASSERT_NE(before, after);
  for (size_t k = 0; k < names.size(); ++k) {
    SCOPED_TRACE(names[k]);
    const std::string& expected = names[k] == "fsync_dir" ? after : before;
    write(1);
    size_t call = 0;
    set_fault_hook([&](const char*) { return call++ == k ? ENOSPC : 0; });
    EXPECT_NE(error_of([&] { write(2); }).find("my.safetensors"), std::string::npos);
    set_fault_hook({});
    EXPECT_TRUE(get(lora_) == expected);
    EXPECT_EQ(temps(), 0);
    write(1);
    killed_at(k, [&] { write(2); });
    EXPECT_TRUE(get(lora_) == expected);
    remove_leftovers(dir_.path());
  }
}

TEST_F(SaveFault, DamagedStatesNeverPushOutGoodOnes) {
  start_again();
  for (const char* name : {"000000008", "000000009"}) put(folder_ / (std::string(name) + ".safetensors"), "damaged");
  EXPECT_EQ(found(), 2);
  EXPECT_EQ(take_warnings().size(), 2u);
  save(3);
  EXPECT_EQ(found(), 3);
  EXPECT_TRUE(fs::exists(folder_ / "000000002.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "000000009.safetensors.damaged"));
}

// Any byte of a state that changes or is missing makes it a damaged one.
TEST_F(SaveFault, DamageIsNoticed) {
  start_again();
  const fs::path newest = folder_ / "000000002.safetensors";
  const std::string whole = get(newest);
  for (size_t at = 0; at < whole.size(); at += whole.size() / 97) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    put(newest, bytes);
    EXPECT_EQ(found(), 1) << "byte " << at;
    put(newest, whole.substr(0, at));
    EXPECT_EQ(found(), 1) << "cut at " << at;
    fs::remove(newest.string() + ".damaged");
  }
  take_warnings();
}

TEST_F(SaveFault, LeftoversOfLivingProcessesStay) {
  const fs::path dead = dir_ / ".lora-host-1-0.tmp", alive = dir_ / ".lora-host-1-1.tmp";
  put(dead, "x");
  put(alive, "x");
  put(dir_ / "other.tmp", "x");
  const int fd = ::open(alive.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(remove_leftovers(dir_.path()), 1);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(dir_ / "other.tmp"));
  ::close(fd);
  EXPECT_EQ(remove_leftovers(dir_ / "missing"), 0);
  // A file that is being published is not a leftover at any of its calls.
  set_fault_hook(
      [&](const char* call) { return std::string_view(call) == "open" ? 0 : (remove_leftovers(dir_.path()), 0); });
  publish_text(dir_ / "file", "text");
  set_fault_hook({});
  EXPECT_EQ(get(dir_ / "file"), "text");
}

}  // namespace
}  // namespace lh::test::save_fault_test
