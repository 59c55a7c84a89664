#include "passes/products.h"

#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr size_t weight_input = 1;  // of linear

struct ProductKind {
  const char* name;   // of model.products
  const char* dtype;  // of model.dtype
};
constexpr ProductKind kinds[] = {{"full", ""}, {"float8", "float8_e4m3"}, {"int8", "int8"}};  // by lk_products

bool is_for(lk_products products, DType dtype) {
  return products == LK_PRODUCTS_I8 ? dtype == DType::i8 : dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2;
}

[[noreturn]] void refuse(const ProductKind& kind, const std::string& found) {
  fail(Code::config,
       "model.products: {} multiplies with weights that are kept in {}, and {}. Set model.dtype: {}, or leave "
       "model.products out",
       kind.name, kind.name, found, kind.dtype);
}

}  // namespace

lk_products products_named(const std::string& name) {
  for (const lk_products products : {LK_PRODUCTS_E4M3, LK_PRODUCTS_I8})
    if (name == kinds[products].name) return products;
  return LK_PRODUCTS_WIDE;
}

void multiply_in(Graph& graph, lk_products products, const std::function<bool(const std::string&)>& chosen) {
  if (products == LK_PRODUCTS_WIDE) return;
  const ProductKind& kind = kinds[products];
  bool any = false, one_fits = false;
  for (Node& node : graph.nodes) {
    if (node.op != &linear_op) continue;
    const ValueInfo& weight = graph.info(node.inputs[weight_input]);
    if (weight.kind != ValueKind::param || !chosen(weight.name)) continue;
    any = true;
    const DType dtype = weight.desc.dtype;
    if (is_quantised(dtype) && !is_for(products, dtype))
      refuse(kind, fmt::format("'{}' is kept in {}", weight.name, dtype_name(dtype)));
    if (!is_for(products, dtype)) continue;  // one that other ops read as well, or that is trained itself
    one_fits = true;
    node.attrs.set(products_attr, int64_t{products});
  }
  if (any && !one_fits) refuse(kind, "none of the layers that LoRA goes on has one");
}

}  // namespace lh
