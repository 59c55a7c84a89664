// A program of elementwise operations, compiled when it is first seen. A warp takes 256 neighbouring elements, 8 in
// each lane, which is a block of codes; what is the same for all elements is computed once by each thread.
#include <algorithm>
#include <optional>

#include "cuda/axes.cuh"
#include "cuda/elements.cuh"
#include "cuda/pointwise_arguments.h"
#include "cuda/pointwise_reduction.h"
#include "cuda/pointwise_source.h"
#include "cuda/runtime_kernels.h"

namespace lk::cuda {

namespace {

static_assert(pointwise_inputs == LK_POINTWISE_MAX_INPUTS && pointwise_outputs == LK_POINTWISE_MAX_OUTPUTS &&
              pointwise_axes == LK_MAX_RANK && pointwise_warps * 32 == block_threads);

// The axes that the output and all inputs have, as few as broadcasting leaves.
Axes<pointwise_inputs> loop_axes(const PointwiseProgram& program) {
  std::array<int64_t, pointwise_inputs> strides[LK_MAX_RANK] = {};
  const lk_tensor& domain = program.domain;
  for (size_t t = 0; t < program.inputs.size(); ++t) {
    const lk_tensor& x = program.inputs[t].x;
    const int32_t missing = domain.rank - x.rank;
    int64_t stride = 1;
    for (int32_t i = domain.rank - 1; i >= missing; --i) {
      const int64_t dim = x.dims[i - missing];
      strides[i][t] = dim == 1 ? 0 : stride;
      stride *= dim;
    }
  }
  Axes<pointwise_inputs> axes;
  for (int32_t i = 0; i < domain.rank; ++i) axes.add(domain.dims[i], strides[i]);
  return axes;
}

PointwiseLoop loop_of(const PointwiseProgram& program, const Axes<pointwise_inputs>& axes) {
  PointwiseLoop loop;
  for (size_t t = 0; t < program.inputs.size(); ++t) {
    const int64_t count = numel(program.inputs[t].x);
    loop.repeated[t] = count != 1 && count != program.count;
    loop.still[t] = loop.repeated[t] && axes.strides[t][axes.rank - 1] == 0;
    if (loop.repeated[t]) loop.rank = axes.rank;
  }
  loop.short_index = program.count < int64_t{1} << 31;
  loop.whole_rows = loop.rank == 1 || axes.inner() % vector_width == 0;
  return loop;
}

bool aligned(const PointwiseProgram& program) {
  uintptr_t addresses = 0;
  for (const lk_pointwise_input& input : program.inputs)
    if (numel(input.x) != 1 || pointwise_codes(input)) addresses |= reinterpret_cast<uintptr_t>(input.x.data);
  for (const lk_pointwise_output& output : program.outputs)
    if (output.reduction == LK_POINTWISE_STORE) addresses |= reinterpret_cast<uintptr_t>(output.y.data);
  return addresses % 16 == 0;
}

PointwiseArguments arguments_of(const PointwiseProgram& program, const Axes<pointwise_inputs>& axes) {
  PointwiseArguments a{};
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    a.inputs[i] = program.inputs[i].x.data;
    a.input_scales[i] = static_cast<const float*>(program.inputs[i].scales.data);
    std::copy_n(axes.strides[i], pointwise_axes, a.strides[i]);
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    a.outputs[i] = program.outputs[i].y.data;
    a.output_scales[i] = static_cast<float*>(program.outputs[i].scales.data);
    a.scale[i] = program.outputs[i].reduction == LK_POINTWISE_SUM ? program.outputs[i].scale : 1.0f;
  }
  std::copy_n(axes.dims, pointwise_axes, a.dims);
  a.count = program.count;
  a.wide = aligned(program);
  return a;
}

// For reductions of other forms.
void reduce_stored(Cuda& cuda, const lk_pointwise_params& p, const PointwiseProgram& program) {
  const std::vector<lk_pointwise_output> outputs =
      stored_outputs(program, [&](size_t) { return cuda.scratch<float>(program.count); });
  lk_pointwise_params stored = p;
  stored.outputs = outputs.data();
  pointwise(cuda, stored);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const lk_pointwise_output& output = program.outputs[i];
    if (output.reduction == LK_POINTWISE_SUM)
      reduce_sum(cuda, {.x = outputs[i].y, .y = output.y, .scale = output.scale});
    else if (output.reduction == LK_POINTWISE_MAX)
      reduce_max(cuda, {.x = outputs[i].y, .y = output.y});
  }
}

}  // namespace

void pointwise(Cuda& cuda, const lk_pointwise_params& p) {
  const PointwiseProgram program(p);
  const Axes<pointwise_inputs> axes = loop_axes(program);
  PointwiseLoop loop = loop_of(program, axes);
  PointwiseArguments arguments = arguments_of(program, axes);
  dim3 grid = grid_for(cuda, chunks_of(program.count));
  if (program.reduces) {
    const std::optional<PointwiseReduction> reduction = pointwise_reduction(program, cuda.device().multiProcessorCount);
    if (!reduction) return reduce_stored(cuda, p, program);
    std::ranges::copy(reduction->over, loop.over);
    arguments.tasks = reduction->tasks;
    arguments.arrivals = cuda.arrivals();
    arguments.wide = arguments.wide != 0 && reduction->tasks.columns % vector_width == 0 ? 1 : 0;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const int64_t parts = reduction->partial(i);
      if (parts > 0) arguments.partial[i] = cuda.scratch<double>(parts);
    }
    grid = dim3(static_cast<unsigned>(reduction->tasks.outer * reduction->tasks.blocks));
  }
  const cudaKernel_t kernel = cuda.runtime_kernels().kernel(pointwise_source(program, loop), "pointwise");
  void* pointers[] = {&arguments};
  cuda.launch_loaded(kernel, grid, block_threads, pointers);
}

}  // namespace lk::cuda
