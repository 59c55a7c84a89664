#include "cpu/bf16_gemm.h"

#ifdef LORA_HAVE_ONEDNN

#include <compare>
#include <dnnl.hpp>
#include <exception>
#include <memory>

#include "cpu/address_space.h"
#include "cpu/gemm_parts.h"

namespace lk::cpu {

namespace {

// oneDNN asks OpenMP how many threads there are when it chooses a kernel and when it runs one. While this lives it
// finds one: parts are what threads share, and bits must not depend on how many of them there are.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

struct Shape {
  int64_t m, n, k, a_stride, b_stride, c_stride;
  bool a_transposed, b_transposed, adds;
  auto operator<=>(const Shape&) const = default;
};

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t stride, bool transposed,
                            dnnl::memory::data_type type) {
  return {{rows, columns}, type, transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1}};
}

// oneDNN's code for a part of one shape. Its working memory is given to it, so that threads can run it at once.
class PartProduct {
 public:
  explicit PartProduct(const Shape& s)
      : a_(describe(s.m, s.k, s.a_stride, s.a_transposed, dnnl::memory::data_type::bf16)),
        b_(describe(s.k, s.n, s.b_stride, s.b_transposed, dnnl::memory::data_type::bf16)),
        c_(describe(s.m, s.n, s.c_stride, false, dnnl::memory::data_type::f32)) {
    const OneThread one;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.adds) {
      dnnl::post_ops added;
      added.append_sum(1.0f);
      attributes.set_post_ops(added);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc chosen(engine(), a_, b_, c_, attributes);
#else
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a_, b_, c_), attributes, engine());
#endif
    scratch_ = chosen.scratchpad_desc();
    product_ = dnnl::matmul(chosen);
  }

  size_t scratch_bytes() const { return scratch_.get_size(); }

  void run(const Bf16Matrix& a, const Bf16Matrix& b, float* c, void* scratch) const {
    // oneDNN does not look whether it got the few hundred bytes that it takes. They are taken first, and given back.
    ::operator delete(::operator new (size_t{64} << 10));
    const OneThread one;
    dnnl::stream stream(engine());
    const auto memory = [](const dnnl::memory::desc& what, const void* data) {
      return dnnl::memory(what, engine(), const_cast<void*>(data));  // it has no memory that is only read
    };
    product_.execute(stream, {{DNNL_ARG_SRC, memory(a_, a.data)},
                              {DNNL_ARG_WEIGHTS, memory(b_, b.data)},
                              {DNNL_ARG_DST, memory(c_, c)},
                              {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}});
    stream.wait();
  }

 private:
  dnnl::memory::desc a_, b_, c_, scratch_;
  dnnl::matmul product_;
};

// Made once for each shape: a step multiplies the same ones again and again. A run that never stops bringing new ones
// begins anew rather than keep code for all of them.
std::shared_ptr<const PartProduct> product_of(const Shape& shape) {
  constexpr size_t most_kept = 512;
  thread_local std::map<Shape, std::shared_ptr<const PartProduct>> kept;
  if (const auto found = kept.find(shape); found != kept.end()) return found->second;
  if (kept.size() >= most_kept) kept.clear();
  constexpr size_t most_taken = size_t{32} << 20;  // 256 KiB for each of a few pieces of code; 3.5 MiB was seen
  if (!there_is(most_taken)) throw Error(LK_E_MEMORY, "no memory for the code of a bf16 product");
  return kept.emplace(shape, std::make_shared<PartProduct>(shape)).first->second;
}

// What body throws of oneDNN's is thrown as the library's own.
template <class Body>
void translated(const Body& body) {
  try {
    body();
  } catch (const dnnl::error& error) {
    throw Error(error.status == dnnl_out_of_memory ? LK_E_MEMORY : LK_E_DEVICE, bf16_library() + ": " + error.what());
  }
}

std::string name_of(dnnl::cpu_isa isa) {
  if (isa == dnnl::cpu_isa::avx512_core_bf16) return "avx512_core_bf16";
  if (isa == dnnl::cpu_isa::avx512_core_amx) return "avx512_core_amx";
  return "isa " + std::to_string(static_cast<unsigned>(isa));
}

}  // namespace

// Later sets of instructions have the bits of those that they hold. A oneDNN whose threads are not OpenMP's would bring
// its own into each part.
bool multiplies_bf16() {
  static const bool does = [] {
    constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    const unsigned runtime = dnnl::version()->cpu_runtime;
    return (runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ) &&
           (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
  }();
  return does;
}

std::string bf16_library() {
  if (!multiplies_bf16()) return "";
  const dnnl::version_t& version = *dnnl::version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch) + " " + name_of(dnnl::get_effective_cpu_isa());
}

void bf16_gemm(Cpu& cpu, int64_t m, int64_t n, int64_t k, Bf16Matrix a, Bf16Matrix b, bool adds, float* c,
               int64_t c_stride) {
  const Parts parts(m, n);
  const auto prepared = [&](const Part& part) {
    return product_of({part.rows, part.columns, k, a.stride, b.stride, c_stride, a.transposed, b.transposed, adds});
  };
  std::shared_ptr<const PartProduct> first, last;
  translated([&] {
    first = prepared(parts[0]);
    last = prepared(parts[parts.count - 1]);
  });
  constexpr size_t page = 4096;  // threads write nothing that lies beside another's
  const size_t bytes = (std::max(first->scratch_bytes(), last->scratch_bytes()) + page - 1) / page * page;
  const Scratch<std::byte> scratch(cpu, static_cast<int64_t>(bytes) * cpu.threads());
  std::exception_ptr failed;  // an exception must not leave a thread of OpenMP
  each_part(cpu, parts, k, "oneDNN", "bf16", [&](const Part& part) {
    try {
      const PartProduct& product = part.rows == parts[0].rows && part.columns == parts[0].columns ? *first : *last;
      product.run(from_row(a, part.row), from_column(b, part.column), c + part.row * c_stride + part.column,
                  scratch.data() + bytes * static_cast<size_t>(omp_get_thread_num()));
    } catch (...) {
#pragma omp critical
      failed = std::current_exception();
    }
  });
  if (failed) translated([&] { std::rethrow_exception(failed); });
}

}  // namespace lk::cpu

#else

namespace lk::cpu {

bool multiplies_bf16() { return false; }

std::string bf16_library() { return ""; }

void bf16_gemm(Cpu&, int64_t, int64_t, int64_t, Bf16Matrix, Bf16Matrix, bool, float*, int64_t) {
  throw Error(LK_E_UNSUPPORTED, "bf16_gemm: this build has no oneDNN");
}

}  // namespace lk::cpu

#endif
