// LoRA (Hu et al. 2021), on convolutions LoCon (Yeh et al. 2023), and DoRA (Liu et al. 2024), which is a LoRA on a
// weight whose norms are trained apart.
//   dW = s up down;  with a core, dW = s up mid down;  s = alpha / rank
// PiSSA (Meng et al. 2024) and OLoRA (Bueyuekakyuez 2024) begin with factors of the weight and count the change from
// there.
#include <algorithm>
#include <string>

#include "adapters.h"
#include "change.h"

namespace adapters {
namespace {

namespace option = lora_host::option;
using lora_host::Failure;

constexpr const char* inits[] = {"kaiming", "gaussian", nullptr};
constexpr const char* pair_inits[] = {"kaiming",        "gaussian", "pissa", "pissa_niter_4",
                                      "pissa_niter_16", "olora",    nullptr};
constexpr lh_option init_option = option::choice(
    "init", "kaiming", inits, "How down begins: kaiming, evenly as torch's layers; gaussian, with deviation 1 / rank.");
constexpr lh_option pair_init_option = option::choice("init", "kaiming", pair_inits,
                                                      "How the matrices begin. Up at 0 and down: kaiming, evenly as "
                                                      "torch's layers; gaussian, with deviation 1 / rank. Both "
                                                      "from the weight: pissa, its largest singular vectors, a minute "
                                                      "for a large layer; pissa_niter_16, the same by so many "
                                                      "rounds of iteration, a second; olora, its QR factors.");
constexpr lh_option bypass_option = option::flag(
    "bypass_mode", "false",
    "Rank dropout as LyCORIS has it beside the layer: one draw for the whole batch, which rank_dropout_scale makes up "
    "for. Otherwise as sd-scripts has it: a draw for each sample, made up for.");
constexpr lh_option pair_options[] = {rs_lora_option,   use_tucker_option,  weight_decompose_option,
                                      wd_on_out_option, detach_norm_option, rank_dropout_scale_option,
                                      bypass_option,    pair_init_option,   option::end};
constexpr lh_option dora_options[] = {rs_lora_option,     use_tucker_option,         wd_on_out_option,
                                      detach_norm_option, rank_dropout_scale_option, init_option,
                                      option::end};

class Lora : public ChangeAdapter {
 public:
  explicit Lora(const Options& options)
      : ChangeAdapter(ChangeOptions(options)),
        init_(options.text("init")),
        bypass_(options.has("bypass_mode") && options.flag("bypass_mode")) {
    if (from_weight() && (options_.weight_decompose || options_.use_tucker || bypass_))
      throw Failure(LH_E_SETTING,
                    "init: " + init_ + " is of plain pairs: it excludes weight_decompose, use_tucker and bypass_mode");
  }

  Form form(const Layer& layer) const override {
    if (options_.weight_decompose) return ChangeAdapter::form(layer);
    if (from_weight()) require_start(layer);
    const double factor = scale(layer);
    return {.form = bypass_ || tucker(layer) ? LH_FORM_OUTPUT : LH_FORM_PAIR,
            .scale = factor,
            .rank = layer->rank,
            .alpha = factor * static_cast<double>(layer->rank),
            .from_start = from_weight()};
  }

  // y + s up(mid(down(x))), with the dropouts on what down gives.
  void build_output(Graph& g, const Layer& layer, const Dims& x, const Dims& y) const override {
    Value inner = g.input("x", x);
    const auto weight = [&](const char* name) { return g.cast(factor(g, layer, name), LH_FLOAT); };
    if (!layer.is_conv()) {
      inner = g.linear(inner, weight("lora_down.weight"));
    } else {
      const std::vector<int64_t> pad(std::begin(layer->pad), std::end(layer->pad));
      const bool core = tucker(layer);
      inner = core ? g.conv2d(inner, weight("lora_down.weight"))
                   : g.conv2d(inner, weight("lora_down.weight"), {}, layer->stride, pad);
      if (core) inner = g.conv2d(inner, weight("lora_mid.weight"), {}, layer->stride, pad);
    }
    inner = dropped(g, layer, inner);
    const Value up = g.affine(factor(g, layer, "lora_up.weight"), scale(layer));
    const Value matrix = g.reshape(g.cast(up, LH_FLOAT), {layer->out, layer->rank});
    g.output("y", g.add(g.input("y", y), g.linear(inner, matrix)));
  }

 protected:
  std::vector<TrainedTensor> factors(const Layer& layer) const override {
    const int64_t r = layer->rank;
    Dims down = layer.weight(), up = {layer->out, r};
    down[0] = r;
    if (layer.is_conv()) up = {layer->out, r, 1, 1};
    if (tucker(layer)) down = {r, layer->in, 1, 1};
    const int64_t inputs = tucker(layer) ? layer->in : layer->in * layer.taps();
    std::vector<TrainedTensor> all{
        {"lora_down.weight", LH_ROLE_DOWN, down, beginning(r, inputs)},
        {"lora_up.weight", LH_ROLE_UP, up, from_weight() ? beginning(r, inputs) : Initial{}}};
    if (tucker(layer))
      all.push_back({"lora_mid.weight",
                     LH_ROLE_OTHER,
                     {r, r, layer->kernel[0], layer->kernel[1]},
                     Initial::kaiming(r * layer.taps())});
    return all;
  }

  Value change(Graph& g, const Layer& layer) const override {
    const int64_t r = layer->rank;
    const Value up = g.reshape(factor(g, layer, "lora_up.weight"), {layer->out, r});
    if (tucker(layer))
      return tucker_product(g, factor(g, layer, "lora_mid.weight"), up,
                            g.reshape(factor(g, layer, "lora_down.weight"), {r, layer->in}));
    const Value down = g.reshape(factor(g, layer, "lora_down.weight"), {r, layer->in * layer.taps()});
    return g.reshape(product(g, up, down), layer.weight());
  }

 private:
  bool from_weight() const { return init_ != "kaiming" && init_ != "gaussian"; }

  Initial beginning(int64_t rank, int64_t inputs) const {
    if (init_ == "gaussian") return Initial::normal(1 / static_cast<double>(rank));
    if (init_ == "pissa") return Initial::singular();
    if (init_ == "pissa_niter_4") return Initial::singular(4);
    if (init_ == "pissa_niter_16") return Initial::singular(16);
    if (init_ == "olora") return Initial::qr();
    return Initial::kaiming(inputs);
  }

  // A rank that is dropped takes its part of up down with it, of which what was there at the start is the weight's.
  void require_start(const Layer& layer) const {
    if (layer->dropout > 0 || layer->rank_dropout > 0)
      throw Failure(LH_E_SETTING, "init: " + init_ +
                                      " excludes network.dropout and network.rank_dropout; use network.module_dropout");
    const int64_t most = std::min(layer->out, layer->in * layer.taps());
    if (layer->rank > most)
      throw Failure(LH_E_SETTING, "init: " + init_ + ": the weight of " + layer->module + " has " +
                                      std::to_string(most) + " singular vectors, the rank is " +
                                      std::to_string(layer->rank) + "; lower it with network.module_ranks");
  }

  // inner: [..., rank]
  Value dropped(Graph& g, const Layer& layer, Value inner) const {
    const Dims shape = g.shape(inner);
    if (layer->dropout > 0)
      inner =
          g.mul(inner, g.cast(g.affine(g.input("keep.element", shape, LH_F32), 1 / (1 - layer->dropout)), LH_FLOAT));
    if (layer->rank_dropout == 0) return inner;
    if (bypass_) return g.mul(inner, g.cast(rank_mask(g, {layer->rank}), LH_FLOAT));
    Dims samples(shape.size(), 1);
    samples.front() = shape.front();
    samples.back() = shape.back();
    const Value kept = g.affine(g.input("keep.rank", samples, LH_F32), 1 / (1 - layer->rank_dropout));
    return g.mul(inner, g.cast(kept, LH_FLOAT));
  }

  std::string init_;
  bool bypass_;
};

class Dora : public Lora {
 public:
  explicit Dora(const Options& options) : Lora(options) { options_.weight_decompose = true; }
};

}  // namespace

constinit const lh_adapter lora = lora_host::adapter<Lora>("lora", pair_options);
constinit const lh_adapter locon = lora_host::adapter<Lora>("locon", pair_options);
constinit const lh_adapter dora = lora_host::adapter<Dora>("dora", dora_options);

}  // namespace adapters
