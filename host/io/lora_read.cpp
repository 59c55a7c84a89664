// Groups the keys of a LoRA file into modules and checks what belongs together.
#include "io/lora_read.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "io/lora_scale.h"
#include "io/record.h"

namespace lh {
namespace {

using enum LoraPart;

// Why a module cannot be used; thrown inside this file.
struct Unusable {
  std::string why;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Unusable{fmt::format(format, std::forward<Args>(args)...)};
}

// Of a module's change: more than any layer has. Small factors may multiply out to any size.
constexpr int64_t most_elements = int64_t{1} << 30;

int64_t columns_of(const Shape& shape) { return shape.with(0, 1).numel(); }

// Scripts that save torch.tensor(16) as alpha write a whole number, and programs that load it take its value.
bool is_whole(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

double number_in(const LoraFile& file, const StoredTensor& tensor) {
  if (!is_whole(tensor.desc.dtype)) return read_f32(file, tensor).as<float>()[0];
  const HostTensor whole = file.file->read(tensor.name);
  return tensor.desc.dtype == DType::i32 ? whole.as<int32_t>()[0] : static_cast<double>(whole.as<int64_t>()[0]);
}

class EntryCheck {
 public:
  EntryCheck(const LoraFile& file, const LoraScales& scales, LoraEntry& entry)
      : file_(file), scales_(scales), e_(entry) {}

  void run() {
    for (const auto& [part, tensor] : e_.parts) {
      const Desc& desc = tensor.stored->desc;
      if (!is_float(desc.dtype) && !(part == alpha && is_whole(desc.dtype)))
        refuse("`{}` is {}, expected floating-point numbers", tensor.stored->name, desc.text());
      if (part != alpha && desc.shape.numel() == 0) refuse("`{}` {} is empty", tensor.stored->name, desc.text());
    }
    find_kind();
    switch (e_.kind) {
      case LoraKind::lora: lora(); break;
      case LoraKind::loha: loha(); break;
      case LoraKind::lokr: lokr(); break;
      case LoraKind::full: full(); break;
    }
    if (static_cast<__int128>(e_.rows()) * e_.row_elements() > most_elements)
      refuse("a change of {} x {} elements, more than any layer has", e_.rows(), e_.row_elements());
    read_alpha();
    if (e_.has(magnitude) && e_.kind == LoraKind::full)
      refuse("a DoRA magnitude without the matrices that it goes with");
  }

 private:
  void find_kind() {
    const bool pair = e_.has(down) || e_.has(up) || e_.has(mid);
    const bool hada = any_of({hada_w1_a, hada_w1_b, hada_w2_a, hada_w2_b, hada_t1, hada_t2});
    const bool kron = any_of({lokr_w1, lokr_w1_a, lokr_w1_b, lokr_w2, lokr_w2_a, lokr_w2_b, lokr_t2});
    const bool whole = e_.has(diff);
    if (pair + hada + kron + whole > 1) refuse("it has tensors of more than one kind of adapter");
    if (!pair && !hada && !kron && !whole && !e_.has(diff_bias)) refuse("it has no matrices beside this");
    e_.kind = pair ? LoraKind::lora : hada ? LoraKind::loha : kron ? LoraKind::lokr : LoraKind::full;
  }

  bool any_of(std::initializer_list<LoraPart> parts) const {
    return std::ranges::any_of(parts, [&](LoraPart part) { return e_.has(part); });
  }

  void need(LoraPart part, const char* name) const {
    if (!e_.has(part)) refuse("its {} is missing", name);
  }

  // Two matrices of a product: [n, rank] and [rank, m...].
  void product(LoraPart left, LoraPart right) const {
    const Shape &a = e_.shape(left), &b = e_.shape(right);
    if (a.rank() < 2 || b.rank() < 2 || columns_of(a) != b[0])
      refuse("{} and {} do not fit, expected [n, rank] and [rank, m]", a.text(), b.text());
  }

  // Tucker: core [rank, rank, kh, kw] between [rank, n] and [rank, m].
  void tucker(LoraPart core, LoraPart left, LoraPart right) const {
    const Shape &t = e_.shape(core), &a = e_.shape(left), &b = e_.shape(right);
    if (t.rank() < 3 || a.rank() < 2 || b.rank() < 2 || t[0] != a[0] || t[1] != b[0])
      refuse("core {} between {} and {} does not fit, expected [p, q, kh, kw], [p, out] and [q, in]", t.text(),
             a.text(), b.text());
  }

  void lora() {
    need(down, "down (or A) matrix");
    need(up, "up (or B) matrix");
    if (e_.parts.at(down).family != e_.parts.at(up).family) refuse("its two matrices are spelled differently");
    const Shape &a = e_.shape(down), &b = e_.shape(up);
    e_.rank = a.rank() > 0 ? a[0] : 0;
    if (e_.has(mid)) {
      const Shape& core = e_.shape(mid);
      if (core.rank() < 3 || a.rank() < 2 || b.rank() < 2 || columns_of(b) != core[0] || core[1] != a[0] ||
          columns_of(a) != a[1])
        refuse(
            "down {}, mid {} and up {} do not fit, expected [rank, in, 1, 1], [rank, rank, kh, kw], [out, rank, 1, 1]",
            a.text(), core.text(), b.text());
      return;
    }
    if (a.rank() < 2 || b.rank() < 2 || columns_of(b) != a[0])
      refuse("down {} and up {} do not fit, expected [rank, in, ...] and [out, rank, ...]", a.text(), b.text());
  }

  void loha() {
    need(hada_w1_a, "`hada_w1_a`"), need(hada_w1_b, "`hada_w1_b`");
    need(hada_w2_a, "`hada_w2_a`"), need(hada_w2_b, "`hada_w2_b`");
    if (e_.has(hada_t1) != e_.has(hada_t2)) refuse("one of `hada_t1` and `hada_t2` is missing");
    e_.rank = e_.shape(hada_w1_b).rank() > 0 ? e_.shape(hada_w1_b)[0] : 0;
    if (e_.has(hada_t1)) {
      tucker(hada_t1, hada_w1_a, hada_w1_b), tucker(hada_t2, hada_w2_a, hada_w2_b);
    } else {
      product(hada_w1_a, hada_w1_b), product(hada_w2_a, hada_w2_b);
    }
    const auto extent = [&](LoraPart a, LoraPart b, LoraPart t) {
      const Shape &left = e_.shape(a), &right = e_.shape(b);
      return e_.has(t) ? std::pair(left[1], right[1] * e_.shape(t).numel() / (e_.shape(t)[0] * e_.shape(t)[1]))
                       : std::pair(left[0], columns_of(right));
    };
    if (extent(hada_w1_a, hada_w1_b, hada_t1) != extent(hada_w2_a, hada_w2_b, hada_t2))
      refuse("its two products have different shapes");
  }

  void lokr() {
    factor(lokr_w1, lokr_w1_a, lokr_w1_b, "lokr_w1");
    if (e_.has(lokr_t2)) {
      need(lokr_w2_a, "`lokr_w2_a`"), need(lokr_w2_b, "`lokr_w2_b`");
      if (e_.has(lokr_w2)) refuse("both `lokr_w2` and `lokr_t2` are there");
      tucker(lokr_t2, lokr_w2_a, lokr_w2_b);
    } else {
      factor(lokr_w2, lokr_w2_a, lokr_w2_b, "lokr_w2");
    }
    const LoraPart decomposed = e_.has(lokr_w2_b) ? lokr_w2_b : lokr_w1_b;
    e_.rank = e_.has(decomposed) ? e_.shape(decomposed)[0] : 0;
  }

  void factor(LoraPart whole, LoraPart left, LoraPart right, const char* name) {
    if (e_.has(whole) && (e_.has(left) || e_.has(right))) refuse("both `{0}` and `{0}_a`, `{0}_b` are there", name);
    if (e_.has(whole)) {
      if (e_.shape(whole).rank() < 2) refuse("`{}` {} is no matrix", name, e_.shape(whole).text());
      return;
    }
    if (!e_.has(left) || !e_.has(right)) refuse("its `{0}`, or both `{0}_a` and `{0}_b`, are missing", name);
    product(left, right);
  }

  void full() const {
    if (e_.has(diff) && e_.shape(diff).rank() == 0) refuse("`diff` is a single number");
  }

  void read_alpha() {
    if (!e_.has(alpha)) {
      if (!scales_ || e_.kind != LoraKind::lora) return;
      try {
        e_.alpha = scales_.alpha(e_.name, e_.rank);
      } catch (const Error& error) {
        refuse("{}", error.what());
      }
      if (e_.alpha) e_.alpha_source = scales_.source();
      return;
    }
    const StoredTensor& tensor = e_.tensor(alpha);
    if (tensor.desc.shape.numel() != 1) refuse("`{}` {}: alpha is one number", tensor.name, tensor.desc.text());
    const double value = number_in(file_, tensor);
    if (!std::isfinite(value)) refuse("`{}` is {}", tensor.name, value);
    e_.alpha = value;
  }

  const LoraFile& file_;
  const LoraScales& scales_;
  LoraEntry& e_;
};

}  // namespace

std::string_view lora_kind_name(LoraKind kind) {
  switch (kind) {
    case LoraKind::lora: return "LoRA";
    case LoraKind::loha: return "LoHa";
    case LoraKind::lokr: return "LoKr";
    case LoraKind::full: return "full";
  }
  return "";
}

int64_t LoraEntry::rows() const {
  switch (kind) {
    case LoraKind::lora: return shape(up)[0];
    case LoraKind::loha: return has(hada_t1) ? shape(hada_w1_a)[1] : shape(hada_w1_a)[0];
    case LoraKind::lokr: {
      const int64_t first = has(lokr_w1) ? shape(lokr_w1)[0] : shape(lokr_w1_a)[0];
      const int64_t second = has(lokr_t2)   ? shape(lokr_w2_a)[1]
                             : has(lokr_w2) ? shape(lokr_w2)[0]
                                            : shape(lokr_w2_a)[0];
      return checked_mul(first, second);
    }
    case LoraKind::full: return has(diff) ? shape(diff)[0] : 0;
  }
  return 0;
}

int64_t LoraEntry::row_elements() const {
  const auto core = [&](LoraPart t) { return shape(t).numel() / (shape(t)[0] * shape(t)[1]); };
  switch (kind) {
    case LoraKind::lora: return columns_of(shape(down)) * (has(mid) ? core(mid) : 1);
    case LoraKind::loha: return has(hada_t1) ? shape(hada_w1_b)[1] * core(hada_t1) : columns_of(shape(hada_w1_b));
    case LoraKind::lokr: {
      const int64_t first = columns_of(shape(has(lokr_w1) ? lokr_w1 : lokr_w1_b));
      const int64_t second = has(lokr_t2) ? checked_mul(shape(lokr_w2_b)[1], core(lokr_t2))
                                          : columns_of(shape(has(lokr_w2) ? lokr_w2 : lokr_w2_b));
      return checked_mul(first, second);
    }
    case LoraKind::full: return has(diff) ? columns_of(shape(diff)) : 0;
  }
  return 0;
}

HostTensor read_f32(const LoraFile& file, const StoredTensor& tensor) {
  return converted(file.file->read(tensor.name), DType::f32);
}

std::string listed(const std::vector<LoraProblem>& problems) {
  constexpr size_t most = 20;
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), most); ++i)
    text += fmt::format("\n  {}: {}", problems[i].key, problems[i].why);
  if (problems.size() > most) text += fmt::format("\n  and {} more", problems.size() - most);
  return text;
}

bool is_lora(const WeightFile& file) {
  return words_of_record(file).empty() && std::ranges::any_of(file.tensors(), [](const StoredTensor& tensor) {
           const auto key = split_lora_key(tensor.name);
           return key && key->part != alpha && key->part != unsupported;
         });
}

void refuse_no_lora(const WeightFile& file) {
  const std::string path = file.path().string(), record = words_of_record(file);
  if (!record.empty()) fail(Code::data, "{}: not a LoRA: it is {}", path, record);
  fail(Code::data,
       "{}: not a LoRA: none of its {} tensors (the first is {}) is part of a known kind of adapter. Is it a model? "
       "Give that with --model",
       path, file.tensors().size(), file.tensors().empty() ? "missing" : file.tensors()[0].name);
}

LoraFile read_lora(const std::filesystem::path& path) {
  LoraFile out{FileCache().open(path), {}, {}};
  std::map<std::string, LoraEntry> found;
  for (const StoredTensor& tensor : out.file->tensors()) {
    const auto key = split_lora_key(tensor.name);
    if (!key || key->part == unsupported) {
      out.problems.push_back({tensor.name, key ? std::string(key->why) : "no tensor of a LoRA"});
      continue;
    }
    LoraEntry& entry = found[key->module];
    entry.name = key->module;
    const auto [at, first] = entry.parts.emplace(key->part, LoraTensor{&tensor, key->family});
    if (!first)
      out.problems.push_back(
          {tensor.name, fmt::format("the same part of one module as `{}`", at->second.stored->name)});
  }
  const LoraScales scales(*out.file);
  for (auto& [name, entry] : found) try {
      EntryCheck(out, scales, entry).run();
      out.entries.push_back(std::move(entry));
    } catch (const Unusable& problem) {
      for (const auto& [part, tensor] : entry.parts) out.problems.push_back({tensor.stored->name, problem.why});
    }
  return out;
}

void require_finite(const WeightFile& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    const HostTensor values = file.read(tensor.name);
    const int64_t elements = tensor.desc.shape.numel();
    if (const int64_t bad = count_non_finite(tensor.desc.dtype, values.data.data(), elements); bad > 0)
      fail(Code::data,
           "{}: {} of {} values of `{}` are a NaN or an infinity: the file is damaged. Fetch it again, or train it "
           "again with a lower train.lr",
           file.path().string(), bad, elements, tensor.name);
  }
}

}  // namespace lh
