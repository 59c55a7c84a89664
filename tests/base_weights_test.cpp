// What adapters begin with, on its way past the host: weights in float32 on the device, numbers by several threads,
// states of optimizers.
#include "compile/base_weights.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "compile/initial_numbers.h"
#include "core/random.h"
#include "ops/ops.h"
#include "passes/store_weights.h"
#include "passes/stream.h"
#include "run/state_memory.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::test::base_weights_test {
namespace {

constexpr const char* weight = "in.weight";

CheckpointSpec one_component() {
  return CheckpointSpec::parse(R"(
components:
  denoiser:
    lora: {kohya: lora_unet_}
    marker: in.weight
)",
                               "test");
}

// Values that no narrower type has all of.
HostTensor uneven(const Shape& shape, DType dtype) {
  HostTensor t(Desc{DType::f32, shape});
  size_t i = 0;
  for (float& v : t.as<float>()) v = std::sin(static_cast<float>(++i)) / 3;
  return converted(t, dtype);
}

// A linear layer whose weight is kept as `kept`, and fetched from host memory if `streamed`.
Graph layer(const Checkpoint& checkpoint, const Shape& shape, DType kept, bool streamed) {
  const DType compute = is_quantised(kept) ? DType::f32 : kept;
  Graph graph(compute);
  const Value x = graph.add_input("x", {compute, {2, shape[1]}});
  const Value w = graph.add_param(weight, {compute, shape});
  graph.outputs["y"] = graph.add(linear_op, {x, w, {}}, {}, 0)[0];
  if (is_quantised(kept))
    store_weights(graph, [&](const std::string& name) -> std::optional<WeightForm> {
      const auto stored = checkpoint.stored_fp8(name);
      return stored && stored->dtype == kept ? *stored : WeightForm::of(kept, shape);
    });
  if (streamed) stream(graph, {.weights = {weight}, .window = int64_t{1} << 30});
  return graph;
}

// 0: no scale, 1: one, otherwise one for each row
void write_checkpoint(const std::filesystem::path& path, const Shape& shape, DType stored, int64_t scales) {
  const HostTensor values = uneven(shape, stored);
  std::vector<TensorToWrite> tensors{{weight, values.desc, values.data.data()}};
  std::vector<float> scale(static_cast<size_t>(scales));
  for (size_t i = 0; i < scale.size(); ++i) scale[i] = 0.3f + 0.01f * static_cast<float>(i);
  if (scales > 0)
    tensors.push_back({"in.weight_scale", {DType::f32, scales == 1 ? Shape{1} : Shape{scales, 1}}, scale.data()});
  write_safetensors(path, tensors, {});
}

TEST(BaseWeights, AreOnTheDeviceWhatTheFileSays) {
  Device device(tested_device());
  const TempDir dir;
  for (const Shape& shape : {Shape{1, 1}, Shape{33, 31}, Shape{257, 128}})
    for (const DType stored : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3})
      for (const int64_t scales : {int64_t{0}, int64_t{1}, shape[0]}) {
        if (scales > 0 && !is_fp8(stored)) continue;
        const std::filesystem::path path = dir / "model.safetensors";
        write_checkpoint(path, shape, stored, scales);
        const Checkpoint checkpoint(one_component(), {{"name_or_path", path}});
        const HostTensor want = checkpoint.read_f32(weight);
        for (const DType kept : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8, DType::nf4})
          for (const bool streamed : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {}, {} scales, kept as {}{}", dtype_name(stored), shape.text(), scales,
                                     dtype_name(kept), streamed ? ", streamed" : ""));
            const Graph graph = layer(checkpoint, shape, kept, streamed);
            const Weights weights(device, checkpoint, graph);
            const BaseWeight base = base_weights(device, checkpoint, weights, graph);
            const DeviceMemory out(device, want.desc.bytes(), "test");
            for (int again = 0; again < 2; ++again) {  // the memory on the way is used once more
              base.put(weight, kernel_tensor(want.desc, out.data()));
              HostTensor got(want.desc);
              out.download(0, got.data.data(), want.desc.bytes());
              EXPECT_EQ(got.data, want.data);
              EXPECT_EQ(base.read(weight).data, want.data);
            }
          }
      }
}

// A weight of a convolution that lies with channels last comes in the order of the file.
TEST(BaseWeights, KeepTheOrderOfTheFile) {
  Device device(tested_device());
  const TempDir dir;
  const Shape shape{6, 5, 3, 3};
  write_checkpoint(dir / "model.safetensors", shape, DType::bf16, 0);
  const Checkpoint checkpoint(one_component(), {{"name_or_path", dir / "model.safetensors"}});
  Graph graph(DType::bf16);
  const Value w = graph.add_param(weight, {DType::bf16, shape});
  graph.info(w).channels_last = true;
  const Weights weights(device, checkpoint, graph);
  const HostTensor want = checkpoint.read_f32(weight);
  const DeviceMemory out(device, want.desc.bytes(), "test");
  base_weights(device, checkpoint, weights, graph).put(weight, kernel_tensor(want.desc, out.data()));
  HostTensor got(want.desc);
  out.download(0, got.data.data(), want.desc.bytes());
  EXPECT_EQ(got.data, want.data);
}

// However many threads make them, the numbers are those that one stream gives one after the other.
TEST(InitialNumbers, AreThoseOfEachStream) {
  using Kind = InitialValue::Kind;
  const std::vector<NumberStream> streams{
      {3, {1}, {Kind::uniform, 0.5}},        {4, {3, 5}, {Kind::normal, 0.25}},        {7, {8193}, {Kind::normal, 2}},
      {8, {4097, 33}, {Kind::uniform, 0.1}}, {9, {(1 << 24) + 3}, {Kind::uniform, 1}},  // more than is made at a time
      {11, {255, 257}, {Kind::normal, 1}}};
  size_t next = 0;
  make_numbers(42, streams, [&](uint64_t number, const HostTensor& values) {
    ASSERT_LT(next, streams.size());
    const NumberStream& stream = streams[next++];
    EXPECT_EQ(number, stream.number);
    ASSERT_EQ(values.desc, (Desc{DType::f32, stream.shape}));
    Random random(42, Purpose::adapter_init, number, 0);
    size_t wrong = 0;
    for (const float v : values.as<float>()) {
      const double drawn = stream.initial.kind == Kind::uniform ? 2 * random.uniform() - 1 : random.normal();
      wrong += v != static_cast<float>(drawn * stream.initial.value);
    }
    EXPECT_EQ(wrong, 0u) << number;
  });
  EXPECT_EQ(next, streams.size());
}

TEST(StateMemory, IsFilledAlikeInBothPlaces) {
  Device device(tested_device());
  constexpr int64_t before = 512, elements = 70001, bytes = before + 4 * elements + 13;
  for (const StatePlace place : {StatePlace::device, StatePlace::host})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::u8, DType::i32})
      for (const double value : {0.1, 127.0}) {
        SCOPED_TRACE(fmt::format("{} {} {}", place == StatePlace::host ? "host" : "device", dtype_name(dtype), value));
        const StateMemory memory(device, place, bytes, "test");
        std::vector<std::byte> want(bytes, std::byte{0x5a}), got(bytes);
        memory.upload(0, want.data(), bytes);
        memory.clear();
        std::ranges::fill(want, std::byte{0});
        memory.fill(before, {dtype, {elements}}, value);
        const std::vector<float> values(elements, static_cast<float>(value));
        convert(DType::f32, values.data(), dtype, want.data() + before, elements);
        memory.download(0, got.data(), bytes);
        EXPECT_EQ(got, want);
      }
}

TEST(StateMemory, TakesWhatIsOnTheDevice) {
  Device device(tested_device());
  std::vector<float> values(1001);
  std::iota(values.begin(), values.end(), 0.5f);
  const int64_t bytes = 4 * static_cast<int64_t>(values.size());
  const DeviceMemory source(device, bytes, "test");
  source.upload(0, values.data(), bytes);
  for (const StatePlace place : {StatePlace::device, StatePlace::host}) {
    const StateMemory memory(device, place, bytes + 256, "test");
    memory.copy(256, source.data(), bytes);
    std::vector<float> got(values.size());
    memory.download(256, got.data(), bytes);
    EXPECT_EQ(got, values);
  }
}

}  // namespace
}  // namespace lh::test::base_weights_test
