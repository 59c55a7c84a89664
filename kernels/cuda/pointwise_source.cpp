#include "cuda/pointwise_source.h"

#include <bit>
#include <cstdio>
#include <utility>

namespace lk::cuda {

namespace {

template <class... Arguments>
std::string text(const char* format, Arguments... arguments) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, arguments...);
  return buffer;
}

const char* storage(lk_dtype dtype) {
  switch (dtype) {
    case LK_F32: return "F32";
    case LK_F16: return "F16";
    case LK_BF16: return "BF16";
    case LK_I32: return "I32";
    default: return "U8";
  }
}

std::string number(float value) { return text("__uint_as_float(0x%08xu)", std::bit_cast<uint32_t>(value)); }

// A function of x. Sums and products are the intrinsics that are never contracted.
std::string unary(const lk_pointwise_instruction& p, const std::string& x) {
  const auto plain = [&](const char* functor) { return std::string(functor) + "{}.value(" + x + ")"; };
  const auto alone = [&](const char* functor) { return std::string("rounded(") + plain(functor) + ", a.zero)"; };
  switch (p.kind) {
    case LK_SILU: return alone("Silu");
    case LK_GELU_ERF: return alone("GeluErf");
    case LK_GELU_TANH: return alone("GeluTanh");
    case LK_GELU_QUICK: return alone("GeluQuick");
    case LK_SIGMOID: return alone("Sigmoid");
    case LK_TANH: return alone("Tanh");
    case LK_RELU: return plain("Relu");
    case LK_EXP: return alone("Exp");
    case LK_SQRT: return alone("Sqrt");
    case LK_RSQRT: return alone("Rsqrt");
    case LK_ABS: return plain("Abs");
    case LK_SIGN: return plain("Sign");
    case LK_SQUARE: return "__fmul_rn(" + x + ", " + x + ")";
    case LK_AFFINE: return std::string("__fmaf_rn(") + number(p.a) + ", " + x + ", " + number(p.b) + ")";
    case LK_CLAMP: return std::string("Clamp{") + number(p.a) + ", " + number(p.b) + "}.value(" + x + ")";
    case LK_SIN: return alone("Sin");
    case LK_COS: return alone("Cos");
    case LK_LOG: return alone("Log");
    case LK_FLOOR: return plain("Floor");
    case LK_CEIL: return plain("Ceil");
    default: return plain("Round");
  }
}

std::string binary(lk_binary_kind kind, const std::string& l, const std::string& r) {
  const auto call = [&](const char* function) { return std::string(function) + "(" + l + ", " + r + ")"; };
  const auto compare = [&](const char* sign) { return "(" + l + sign + r + " ? 1.0f : 0.0f)"; };
  const auto first_if = [&](const char* sign) {  // NaN in either operand gives NaN
    return "(" + l + sign + r + " || " + l + " != " + l + " ? " + l + " : " + r + ")";
  };
  switch (kind) {
    case LK_ADD: return call("__fadd_rn");
    case LK_SUB: return call("__fsub_rn");
    case LK_MUL: return call("__fmul_rn");
    case LK_DIV: return call("__fdiv_rn");
    case LK_MAX: return first_if(" > ");
    case LK_MIN: return first_if(" < ");
    case LK_GREATER_EQUAL: return compare(" >= ");
    case LK_EQUAL: return compare(" == ");
    case LK_LESS: return compare(" < ");
    case LK_LESS_EQUAL: return compare(" <= ");
    default: return compare(" > ");
  }
}

class Writer {
 public:
  Writer(const PointwiseProgram& program, const PointwiseLoop& loop)
      : program_(program), loop_(loop), scalars_(program) {
    for (const auto& input : program.inputs) codes_[input.is_signed != 0] |= pointwise_codes(input);
    for (const auto& output : program.outputs) codes_[output.is_signed != 0] |= pointwise_codes(output);
    for (size_t i = 0; i < program.inputs.size(); ++i) still_[i] = loop.whole_rows && loop.still[i];
    for (size_t i = 0; i < program.instructions.size(); ++i) still_[program.value_of(i)] = stands_still(i);
  }

  std::string source() {
    line(program_.reduces ? "#include \"cuda/pointwise_reduce.cuh\"" : "#include \"cuda/pointwise_device.cuh\"");
    if (codes_[0] || codes_[1]) line("#include \"cuda/blockwise.cuh\"");
    line("#include \"cuda/await_previous.cuh\"");
    line("using namespace lk::cuda;");
    line("using namespace lk;");
    line("extern \"C\" __global__ void __launch_bounds__(256)");
    line("pointwise(const __grid_constant__ PointwiseArguments a) {");
    line("await_previous();");
    maps();
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (scalars_[static_cast<int32_t>(i)])
        line(text("const float v%zu = load_one<%s>(a.inputs[%zu], 0);", i, storage(program_.inputs[i].x.dtype), i));
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (scalars_[program_.value_of(i)])
        line(std::string("const float ") + name(program_.value_of(i)) + " = " + expression(program_.instructions[i]) +
             ";");
    }
    if (program_.reduces) begin_task();
    line("const auto run = [&](auto kind, int64_t base, int64_t i, int length) {");
    line("constexpr bool whole = decltype(kind)::value;");
    for (size_t i = 0; i < program_.inputs.size(); ++i) load(i);
    for (size_t i = 0; i < program_.instructions.size(); ++i) execute(i);
    for (size_t i = 0; i < program_.outputs.size(); ++i) reduced(i) ? reduce(i) : store(i);
    line("};");
    program_.reduces ? end_task() : loop();
    line("}");
    return std::move(source_);
  }

 private:
  void line(const std::string& words) { source_ += words + "\n"; }
  static std::string name(int32_t value) { return std::string("v") + std::to_string(value); }
  bool single(int32_t value) const { return scalars_[value] || still_[value]; }
  std::string element(int32_t value) const { return single(value) ? name(value) : name(value) + "[k]"; }
  void each(const std::string& statement) { line("_Pragma(\"unroll\") for (int k = 0; k < 8; ++k) " + statement); }

  // Whether a chunk has one value for all its elements.
  bool stands_still(size_t i) const {
    const lk_pointwise_instruction& p = program_.instructions[i];
    if (p.code == LK_POINTWISE_STOCHASTIC || scalars_[program_.value_of(i)]) return false;
    for (int32_t k = 0; k < pointwise_operands(p.code); ++k)
      if (!single(p.operands[k])) return false;
    return true;
  }

  void loop() {
    line("const int64_t lane = threadIdx.x % 32, warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;");
    line("const int64_t stride = int64_t{gridDim.x} * blockDim.x * 8;");
    line("for (int64_t base = warp * 256; base < a.count; base += stride) {");
    line("const int64_t i = base + lane * 8, left = a.count - i;");
    line("if (a.wide && base + 256 <= a.count) run(Whole{}, base, i, 8);");
    line("else run(Partial{}, base, i, static_cast<int>(left < 0 ? 0 : left < 8 ? left : 8));");
    line("}");
  }

  // ---- reductions: what a lane found so far is r<output>, of a column each of its 8 and in s<output> what it folded
  bool reduced(size_t i) const { return program_.outputs[i].reduction != LK_POINTWISE_STORE; }
  const char* op(size_t i) const { return program_.outputs[i].reduction == LK_POINTWISE_SUM ? "Sum" : "Largest"; }
  bool any(PointwiseOver over) const {
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      if (reduced(i) && loop_.over[i] == over) return true;
    return false;
  }
  template <class Words>
  void each_over(PointwiseOver over, const Words& words) {
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      if (reduced(i) && loop_.over[i] == over) line(words(i));
  }

  void begin_task() {
    line("const Task task(a.tasks);");
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (!reduced(i)) continue;
      if (loop_.over[i] != PointwiseOver::rows) {
        line(text("double r%zu = %s::none();", i, op(i)));
        continue;
      }
      line(text("float r%zu[8];", i));
      line(text("double s%zu[8];", i));
      each(text("s%zu[k] = %s::none(), r%zu[k] = static_cast<float>(s%zu[k]);", i, op(i), i, i));
    }
  }

  void reduce(size_t i) {
    const lk_pointwise_output& output = program_.outputs[i];
    const std::string value = std::string("whole || k < length ? ") + element(output.value) + " : none";
    line("{");
    line(text("const float none = static_cast<float>(%s::none());", op(i)));
    if (loop_.over[i] == PointwiseOver::rows) {
      each(text("r%zu[k] = %s::joined(r%zu[k], ", i, op(i), i) + value + ");");
    } else {
      line("float y[8];");
      each("y[k] = " + value + ";");
      line(text("r%zu = %s::joined(r%zu, joined_chunk<%s>(y));", i, op(i), i, op(i)));
    }
    line("}");
  }

  void end_task() {
    line("const auto begin_row = [&]() {");
    each_over(PointwiseOver::columns, [&](size_t i) { return text("r%zu = %s::none();", i, op(i)); });
    line("};");
    line("const auto end_of_row = [&](int64_t row) {");
    each_over(PointwiseOver::columns,
              [&](size_t i) { return text("end_row<%s, %s>(a, %zu, task, row, r%zu);", op(i), type(i), i, i); });
    line("};");
    line("const auto fold = [&]() {");
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (!reduced(i) || loop_.over[i] != PointwiseOver::rows) continue;
      each(text("s%zu[k] = %s::joined(s%zu[k], double{r%zu[k]}), r%zu[k] = static_cast<float>(%s::none());", i, op(i),
                i, i, i, op(i)));
    }
    line("};");
    line(text("walk<%s>(a, task, run, begin_row, end_of_row, fold);", any(PointwiseOver::rows) ? "true" : "false"));
    each_over(PointwiseOver::rows,
              [&](size_t i) { return text("end_columns<%s, %s>(a, %zu, task, s%zu);", op(i), type(i), i, i); });
    each_over(PointwiseOver::both,
              [&](size_t i) { return text("end_both<%s, %s>(a, %zu, task, r%zu);", op(i), type(i), i, i); });
    for (const auto& [over, name] : {std::pair(PointwiseOver::columns, "columns"),
                                     std::pair(PointwiseOver::rows, "rows"), std::pair(PointwiseOver::both, "both")}) {
      if (!any(over)) continue;
      line(over == PointwiseOver::columns ? "if (last_warp(a, task)) {"
                                          : text("if (last_block<Over::%s>(a, task)) {", name));
      each_over(over,
                [&](size_t i) { return text("finish<%s, Over::%s, %s>(a, %zu, task);", op(i), name, type(i), i); });
      line("}");
    }
  }
  const char* type(size_t output) const { return storage(program_.outputs[output].y.dtype); }

  void maps() {
    constexpr const char* names[2] = {"unsigned_map", "signed_map"};
    for (int i = 0; i < 2; ++i) {
      if (!codes_[i]) continue;
      line(text("__shared__ BlockwiseMap %s;", names[i]));
      line(text("copy_map(%d, %s);", i, names[i]));
    }
    if (codes_[0] || codes_[1]) line("__syncthreads();");
  }
  static const char* map(int32_t is_signed) { return is_signed != 0 ? "signed_map" : "unsigned_map"; }

  void load(size_t i) {
    if (scalars_[static_cast<int32_t>(i)]) return;
    const lk_pointwise_input& input = program_.inputs[i];
    const char* const type = storage(input.x.dtype);
    if (still_[i]) {
      load_still(i, type);
      return;
    }
    line(text("float v%zu[8];", i));
    if (pointwise_codes(input)) {
      line(text("uint8_t codes%zu[8];", i));
      line(text("load_codes(static_cast<const uint8_t*>(a.inputs[%zu]), i, length, whole, codes%zu);", i, i));
      line(text("dequantize(%s, codes%zu, a.input_scales[%zu][base / 256], v%zu);", map(input.is_signed), i, i, i));
    } else if (!loop_.repeated[i]) {
      line(text("load<%s, whole>(a.inputs[%zu], i, length, v%zu);", type, i, i));
    } else {
      load_repeated(i, type);
    }
  }

  // Where input i has an element, up to its number.
  std::string place(size_t i) const {
    const std::string index = loop_.short_index ? "uint32_t" : "uint64_t";
    return "place<" + index + ", " + std::to_string(loop_.rank) + ">(a, " + std::to_string(i) + ", ";
  }
  // All of a chunk is in one row; one behind the end is not looked at.
  void find_place(size_t i) { line(text("const int64_t at%zu = length > 0 ? ", i) + place(i) + "i) : 0;"); }

  void load_still(size_t i, const char* type) {
    find_place(i);
    line(text("const float v%zu = load_one<%s>(a.inputs[%zu], at%zu);", i, type, i, i));
  }

  void load_repeated(size_t i, const char* type) {
    if (!loop_.whole_rows) {
      return each(text("v%zu[k] = k < length ? load_one<%s>(a.inputs[%zu], ", i, type, i) + place(i) +
                  "i + k)) : 0.0f;");
    }
    find_place(i);
    line(text("load<%s, whole>(a.inputs[%zu], at%zu, length, v%zu);", type, i, i, i));
  }

  // Of element k where it names values that have elements.
  std::string expression(const lk_pointwise_instruction& p) const {
    const std::string x = element(p.operands[0]);
    switch (p.code) {
      case LK_POINTWISE_UNARY: return unary(p, x);
      case LK_POINTWISE_BINARY: return binary(p.kind, x, element(p.operands[1]));
      case LK_POINTWISE_WHERE:
        return "(" + x + " != 0.0f ? " + element(p.operands[1]) + " : " + element(p.operands[2]) + ")";
      default: return text("%s::widen(%s::narrow(", storage(p.kind), storage(p.kind)) + x + "))";
    }
  }

  void execute(size_t i) {
    const lk_pointwise_instruction& p = program_.instructions[i];
    const int32_t value = program_.value_of(i);
    if (scalars_[value]) return;
    if (still_[value]) return line(std::string("const float ") + name(value) + " = " + expression(p) + ";");
    line(std::string("float ") + name(value) + "[8];");
    if (p.code != LK_POINTWISE_STOCHASTIC) return each(name(value) + "[k] = " + expression(p) + ";");
    line("_Pragma(\"unroll\") for (int half = 0; half < 2; ++half) {");
    line(
        text("const PhiloxBlock random = stochastic_words(i / 4 + half, *static_cast<const int32_t*>(a.inputs[%d]), "
             "%lluull, %lluull);",
             p.operands[1], static_cast<unsigned long long>(p.seed), static_cast<unsigned long long>(p.stream)));
    line("_Pragma(\"unroll\") for (int k = 4 * half; k < 4 * half + 4; ++k)");
    line(name(value) + "[k] = __uint_as_float(stochastic_bf16(__float_as_uint(" + element(p.operands[0]) +
         "), random.words[k % 4]) << 16);");
    line("}");
  }

  void store(size_t i) {
    const lk_pointwise_output& output = program_.outputs[i];
    line("{");
    line("float y[8];");
    if (!pointwise_codes(output)) {
      each(std::string("y[k] = ") + element(output.value) + ";");
      line(text("store<%s, whole>(a.outputs[%zu], i, length, y);", storage(output.y.dtype), i));
    } else {
      line("uint8_t codes[8];");
      each(std::string("y[k] = whole || k < length ? ") + element(output.value) + " : 0.0f;");
      line(text("const float scale = quantize_block(%s, y, codes);", map(output.is_signed)));
      line(text("store_codes(static_cast<uint8_t*>(a.outputs[%zu]), i, length, whole, codes);", i));
      line(text("if (i == base) a.output_scales[%zu][base / 256] = scale;", i));
    }
    line("}");
  }

  const PointwiseProgram& program_;
  const PointwiseLoop& loop_;
  const PointwiseScalars scalars_;
  bool still_[pointwise_max_values] = {};  // by value: the same for all elements of a chunk, and no scalar
  bool codes_[2] = {};                     // whether there are any of the unsigned and of the signed map
  std::string source_;
};

}  // namespace

std::string pointwise_source(const PointwiseProgram& program, const PointwiseLoop& loop) {
  return Writer(program, loop).source();
}

}  // namespace lk::cuda
