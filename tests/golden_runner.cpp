// golden_runner [--device cpu|cuda] [--dtype float32|bfloat16|float16] [--base fp8|int8|nf4] CASE_DIR...
//
// Writes a case's generated weights to checkpoint files in the original layout, loads them the way the product does,
// runs the role that the case names, and compares every expected tensor:
//   <case> <tensor> rel_error=<x> limit=<y> ok|FAIL
// With --base, a denoiser's weights are rounded as model.dtype says (other roles have nothing to round and are left
// out), and what it gives is compared with what the same graph gives with weights of full width, whose values are made
// of the same codes and factors in float64: there the limits are those of the unrounded case. golden_error=<z> is the
// distance from the expected tensor, which is what the rounding costs.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <set>

#include "cli/environment.h"
#include "core/error.h"
#include "io/safetensors.h"
#include "plugin/registry.h"
#include "support/adapter_update.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/reference/quantise.h"
#include "train/prepare.h"

namespace {

using namespace lh;
using golden::Case;

// Files of a case in a folder that is removed at the end, and the model opened from them.
class CaseModel {
 public:
  CaseModel(const Registry& registry, const Case& c, const std::string& base)
      : folder_(std::filesystem::temp_directory_path() / fmt::format("golden-{}-{}-{}", c.name, base, getpid())) {
    std::filesystem::create_directories(folder_);
    ModelConfig config = write(c, registry);
    config.dtype = base;
    model_ =
        std::make_unique<Model>(registry, config, c.json.at("plugin"), c.json.value("images", std::set<std::string>()));
  }
  ~CaseModel() { std::filesystem::remove_all(folder_); }
  const Model& operator*() const { return *model_; }

 private:
  // "<file>:<key>" goes to <file>.safetensors, other keys to one file.
  ModelConfig write(const Case& c, const Registry& registry) {
    std::map<std::string, std::vector<std::pair<std::string, HostTensor>>> files;
    for (const auto& [key, spec] : c.json.at("weights").items()) {
      const size_t colon = key.find(':');
      const std::string file = colon == std::string::npos ? "model" : key.substr(0, colon);
      files[file].emplace_back(colon == std::string::npos ? key : key.substr(colon + 1), c.tensor(key, spec));
    }
    for (const auto& [file, tensors] : files) {
      std::vector<TensorToWrite> list;
      for (const auto& [key, t] : tensors) list.push_back({key, t.desc, t.data.data()});
      write_safetensors(folder_ / (file + ".safetensors"), list, {});
    }
    ModelConfig config;
    const auto settings = c.json.value("settings", std::map<std::string, std::string>());
    for (const auto& [key, value] : settings) config.given[key] = {value};
    const CheckpointSpec spec = spec_of(registry, c.json.at("plugin"));
    const std::string role = c.json.at("role");
    const auto place = [&](const std::string& component, const std::string& file) {
      const ComponentSpec* found = spec.component(component);
      if (found == nullptr) fail(Code::data, "the plugin has no component '{}'", component);
      if (found->config_key == "name_or_path")
        config.name_or_path = folder_ / (file + ".safetensors");
      else
        config.given[found->config_key] = {folder_ / (file + ".safetensors")};
    };
    if (c.json.contains("prefixes")) {  // of each encoder; "<file>:" where every encoder has a file
      for (const auto& [encoder, prefix] : c.json.at("prefixes").items()) {
        const std::string text = prefix;
        const size_t colon = text.find(':');
        place(encoder, colon == std::string::npos ? "model" : text.substr(0, colon));
      }
    } else if (role.starts_with("vae.")) {
      place("vae", "model");
    } else {
      place("denoiser", "model");
    }
    return config;
  }

  static CheckpointSpec spec_of(const Registry& registry, const std::string& plugin) {
    for (const auto& offered : registry.models())
      if (plugin == offered.descriptor->id) return CheckpointSpec::parse(offered.descriptor->checkpoint, plugin);
    fail(Code::plugin, "no plugin '{}'", plugin);
  }

  std::filesystem::path folder_;
  std::unique_ptr<Model> model_;
};

using Results = std::map<std::string, HostTensor>;
using Values = std::map<std::string, std::vector<double>>;  // of weights, by name

// The values of a weight that is kept as codes, in float64.
std::vector<double> values_of(const Checkpoint& checkpoint, const std::string& name, const Desc& desc,
                              const Desc& scale) {
  namespace ref = test::reference;
  HostTensor codes(desc), factors(scale);
  checkpoint.read_codes(name, desc.dtype, codes.data, factors.data);
  if (desc.dtype == DType::nf4) return ref::Nf4{desc.shape[0], desc.shape[1]}.values(codes.data, factors.data);
  return ref::scaled_rows(desc.shape[0], codes.data, factors.as<float>(),
                          desc.dtype == DType::i8 ? ref::int8 : ref::e4m3);
}

// Names of expected tensors -> what the product computes.
class CaseRun {
 public:
  CaseRun(Device& device, const Registry& registry, const Case& c, DType compute, const std::string& base = "auto")
      : device_(device),
        registry_(registry),
        case_(c),
        compute_(compute),
        holder_(registry, c, base),
        model_(*holder_) {}

  // Weights in `instead` have these values.
  Results run(const Values& instead = {}) {
    instead_ = instead;
    if (case_.json.at("role") != "denoiser")
      outputs_of(model_.build(case_.json.at("role"), sizes(), compute_));
    else if (case_.json.at("inputs").contains("target"))
      denoiser();
    else
      outputs_of(build_sample_graph(
          model_, sizes(), [](const std::string&) { return nullptr; }, compute_));
    return std::move(results_);
  }

  // The values of all weights that the denoiser keeps as codes.
  Values rounded_weights() const {
    Values all;
    const auto none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
    const TrainGraph train = build_train_graph(model_, sizes(), none, {.compute = compute_});
    for (const auto& [name, value] : train.graph.params) {
      const ValueInfo& info = train.graph.info(value);
      if (is_quantised(info.desc.dtype))
        all[name] = values_of(model_.checkpoint(), name, info.desc, train.graph.desc(info.scale));
    }
    return all;
  }

 private:
  // whole: names of weights that are not rounded in this graph.
  Weights weights_of(const Graph& graph, const std::vector<std::string>& whole = {}) const {
    Weights weights(device_, model_.checkpoint(), graph);
    Externals bound = weights.bind(graph);
    for (const auto& [name, values] : instead_) {
      if (std::ranges::find(whole, name) != whole.end()) continue;
      const Value value = graph.params.at(name);
      const std::vector<float> floats(values.begin(), values.end());
      const HostTensor tensor =
          converted(HostTensor::from_floats(graph.desc(value).shape, floats), graph.desc(value).dtype);
      device_.check(lk_upload(device_.context(), bound.at(value), tensor.data.data(), tensor.desc.bytes()), name);
    }
    return weights;
  }

  Sizes sizes() const {
    Sizes out;
    const auto& inputs = model_.recipe().inputs;
    for (const auto& [key, spec] : case_.json.at("inputs").items()) {
      if (model_.recipe().pictures.contains(key)) continue;  // one for all texts
      const auto shape = spec.at("shape").get<std::vector<int64_t>>();
      out["batch"] = shape[0];
      if (case_.json.at("role").get<std::string>().starts_with("sound.")) {
        out[key == "sound" ? "samples" : "rows"] = shape[1];
      } else if (key == "latents" || (key == "image" && !inputs.contains(key))) {
        if (model_.recipe().latents.time) out["time"] = shape.size() == 5 ? shape[2] : 1;
        out["height"] = shape[shape.size() - 2];
        out["width"] = shape[shape.size() - 1];
      } else if (key == "sound") {
        out["sound"] = shape[1];
      } else if (const auto bound = inputs.find(key); bound != inputs.end() && shape.size() >= 3) {
        out[length_size(key)] = shape[1];
      } else if (key.ends_with(".input_ids")) {
        const std::string encoder = key.substr(0, key.size() - 10);
        out[encoder + ".length"] = shape[1];
        if (const int64_t drop = dropped(encoder); drop > 0) out[encoder + ".drop"] = drop;
      }
    }
    add_pictures(out);
    return out;
  }

  // Pictures beside a text stand where the token that case.json names begins to be repeated, in the recipe's order;
  // those of an encoder that reads nothing have no place.
  void add_pictures(Sizes& out) const {
    size_t at = 0;
    for (const auto& [key, picture] : model_.recipe().pictures) {
      if (!case_.json.at("inputs").contains(key)) continue;
      const auto shape = case_.json.at("inputs").at(key).at("shape").get<std::vector<int64_t>>();
      out[key + "_height"] = shape[2];
      out[key + "_width"] = shape[3];
      if (!model_.recipe().tokenizers.contains(picture.encoder)) continue;
      const int32_t place = case_.json.at("places").at(picture.encoder);
      const HostTensor ids = case_.input(picture.encoder + ".input_ids");
      const std::span<const int32_t> text = ids.as<int32_t>();  // the first one
      while (at < text.size() && text[at] != place) ++at;
      out[key + "_at"] = static_cast<int64_t>(at);
      while (at < text.size() && text[at] == place) ++at;
    }
  }

  // Tokens of the template, whose rows are left out: the case's own number, or the recipe's.
  int64_t dropped(const std::string& encoder) const {
    const nlohmann::json options = case_.json.value("family_options", nlohmann::json::object());
    if (const nlohmann::json own = options.value(encoder, nlohmann::json::object()); own.contains("drop"))
      return own.at("drop");
    const auto spec = model_.recipe().tokenizers.find(encoder);
    return spec == model_.recipe().tokenizers.end() ? 0 : spec->second.drop;
  }

  HostTensor shown(const HostTensor& t) const {  // images as the truth has them
    return golden::channels_first(converted(t, DType::f32));
  }

  void set_inputs(Program& program) const {
    for (const auto& [key, spec] : case_.json.at("inputs").items())
      if (program.graph().inputs.contains(key))
        program.set_input(key, model_.recipe().pictures.contains(key) ? case_.input(key) : with_time(case_.input(key)));
  }

  // An image is one frame where the model has an axis of time.
  HostTensor with_time(HostTensor t) const {
    const Shape s = t.desc.shape;
    if (model_.recipe().latents.time && s.rank() == 4) t.desc.shape = {s[0], 1, s[1], s[2], s[3]};
    return t;
  }

  // What the graph gives, by its outputs' names.
  void outputs_of(Graph graph) {
    const Weights weights = weights_of(graph);
    const Externals bound = weights.bind(graph);
    OwnedProgram program(device_, std::move(graph), bound, "golden case");
    set_inputs(*program);
    program->run();
    for (const auto& [name, value] : program->graph().outputs) results_[name] = shown(program->output(name));
  }

  void denoiser() {
    std::vector<std::string> base;
    if (case_.json.contains("full_grads")) base = case_.json.at("full_grads").get<std::vector<std::string>>();
    const auto none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
    TrainGraph plain = build_train_graph(model_, sizes(), none, {.compute = compute_, .base_gradients = base});
    {
      const Weights weights = weights_of(plain.graph, base);
      const Externals bound = weights.bind(plain.graph);
      OwnedProgram program(device_, plain.graph, bound, "golden case");
      set_inputs(*program);
      set_loss_scale(*program);
      program->run();
      results_["output"] = shown(program->output("output"));
      for (const std::string& name : base) unscale_into("full.grad." + name, gradient_of(*program, name));
    }
    if (case_.json.contains("lora")) with_adapters();
  }

  float loss_scale() const { return compute_ == DType::f16 ? 4096.0f : 1.0f; }
  void set_loss_scale(Program& program) const {
    const float scale = loss_scale();
    program.set_input("loss_scale", HostTensor::from_floats({1}, std::span(&scale, 1)));
  }
  void unscale_into(const std::string& name, const HostTensor& gradient) {
    HostTensor g = converted(gradient, DType::f32);
    for (float& v : g.as<float>()) v /= loss_scale();
    results_[name] = std::move(g);
  }

  // The gradient of a weight in the layout that files have; on the device those of convolutions lie channels last.
  static HostTensor gradient_of(const Program& program, const std::string& weight) {
    HostTensor gradient = program.output("grad." + weight);
    const Graph& graph = program.graph();
    if (!graph.info(graph.params.at(weight)).channels_last) return gradient;
    const Shape s = gradient.desc.shape;  // [O, I, KH, KW]
    gradient.desc.shape = Shape{s[0], s[2], s[3], s[1]};
    return nhwc_to_nchw(converted(gradient, DType::f32));
  }

  void with_adapters() {
    const auto& lora = case_.json.at("lora");
    const AdapterSpec spec{lora.at("rank"), lora.at("alpha"), 0, 0};
    const auto targets = lora.at("targets").get<std::set<std::string>>();
    const auto select = [&](const std::string& m) { return targets.contains(m) ? &spec : nullptr; };
    TrainStep step(build_train_graph(model_, sizes(), select, {.compute = compute_}));
    const Weights weights = weights_of(step.train_graph().graph);
    const auto& rule = case_.json.at("optimizer");
    nlohmann::json options;
    for (const char* key : {"betas", "eps", "weight_decay"}) options[key] = rule.at(key);
    Adapters adapters(step.train_graph().graph, step.train_graph().modules);
    adapters.allocate(device_);
    for (const AdapterTensor& t : adapters.tensors())
      adapters.upload("p", t, case_.tensor(t.name, lora.at("tensors").at(t.name)));
    const DeviceMemory arena(device_, step.arena_bytes(), "activations"), scalars(device_, 1024, "scalars"),
        inputs(device_, step.input_bytes(), "inputs");
    step.bind(device_, {arena.data(), inputs.data(), scalars.data() + 512}, weights, adapters);
    test::AdapterUpdate update(device_, registry_, adapters, rule.at("name"), test::given_options(options.dump()));
    set_inputs(step.program());
    set_loss_scale(step.program());
    std::vector<float> losses;
    const int steps = rule.at("steps");
    for (int i = 0; i < steps; ++i) {
      step.program().run();
      losses.push_back(static_cast<float>(step.loss()));
      if (i == 0) {
        results_["lora.output"] = shown(step.program().output("output"));
        results_["lora.loss"] = HostTensor::from_floats({1}, losses);
        for (const AdapterTensor& t : adapters.tensors()) unscale_into("grad." + t.name, adapters.download("g", t));
      }
      update.step(rule.at("lr"), static_cast<float>(i + 1));
    }
    results_["losses"] = HostTensor::from_floats({steps}, losses);
    for (const AdapterTensor& t : adapters.tensors()) results_["trained." + t.name] = adapters.download("p", t);
  }

  Device& device_;
  const Registry& registry_;
  const Case& case_;
  DType compute_;
  CaseModel holder_;
  const Model& model_;
  Values instead_;
  Results results_;
};

// The limit for a tensor, or a negative number where the case does not judge it in this precision.
double limit_of(const Case& c, const std::string& name, DType compute) {
  const std::string field = compute == DType::f32 ? "fp32_error" : compute == DType::bf16 ? "bf16_error" : "fp16_error";
  const nlohmann::json errors = c.json.value(field, nlohmann::json::object());
  if (compute != DType::f32) return errors.contains(name) ? 3 * errors.at(name).get<double>() : -1;
  const bool loose = name.starts_with("grad.") || name.starts_with("full.grad.") || name.starts_with("trained.");
  return std::max(4 * errors.value(name, 0.0), loose ? 1e-5 : 2e-6);
}

// A case that judges nothing in this precision would pass whatever the plugin does.
void require_limits(const Case& c, DType compute) {
  for (const std::string& name : c.expected_names())
    if (limit_of(c, name, compute) >= 0) return;
  fail(Code::data, "case.json has no {} for any expected tensor: it cannot be judged in this precision",
       compute == DType::bf16 ? "bf16_error" : "fp16_error");
}

// What a case should give, and what it gives.
struct Outcome {
  Results want, got;
  bool judged = true;
};

Outcome run_case(Device& device, const Registry& registry, const Case& c, DType compute, const std::string& base) {
  Outcome outcome;
  for (const std::string& name : c.expected_names()) outcome.want[name] = c.expected(name);
  if (base == "auto") {
    outcome.got = CaseRun(device, registry, c, compute).run();
    return outcome;
  }
  if (c.json.at("role") != "denoiser") return {{}, {}, false};
  CaseRun rounded(device, registry, c, compute, base);
  const Values values = rounded.rounded_weights();
  if (values.empty()) fail(Code::data, "no weight of the case is rounded to {}", base);
  outcome.want = CaseRun(device, registry, c, compute).run(values);
  outcome.got = rounded.run();
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  sleep_when_idle(argv);
  CLI::App app("Runs golden cases through the product and compares every expected tensor.");
  std::string device_name = "cpu", dtype = "float32", base = "auto";
  std::vector<std::filesystem::path> cases, plugin_dirs;
  app.add_option("--device", device_name, "cpu or cuda");
  app.add_option("--dtype", dtype, "float32, bfloat16 or float16");
  app.add_option("--base", base, "fp8, int8 or nf4: what the weights of a denoiser are rounded to")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, std::string>{{"fp8", "float8_e4m3"}, {"int8", "int8"}, {"nf4", "nf4"}}));
  app.add_option("--plugin-dir", plugin_dirs, "where plugins are; may be repeated")->allow_extra_args(false);
  app.add_option("cases", cases, "case folders")->required();
  CLI11_PARSE(app, argc, argv);

  int passed = 0, failed = 0;
  try {
    const DType compute = compute_dtype(dtype);
    const Registry registry(plugin_dirs, {});
    Device device(device_name);
    for (const std::filesystem::path& folder : cases) {
      try {
        const Case c(folder);
        require_limits(c, compute);
        const Outcome outcome = run_case(device, registry, c, compute, base);
        if (!outcome.judged) continue;
        for (const std::string& name : c.expected_names()) {
          const double limit = limit_of(c, name, compute);
          if (limit < 0) continue;
          const auto error_of = [&](const Results& want) {
            const auto got = outcome.got.find(name), expected = want.find(name);
            return got == outcome.got.end() || expected == want.end()
                       ? INFINITY
                       : golden::relative_error(got->second.as<float>(), expected->second.as<float>());
          };
          const double error = error_of(outcome.want);
          const bool ok = error <= limit;
          ++(ok ? passed : failed);
          const std::string cost = base == "auto"
                                       ? std::string()
                                       : fmt::format(" golden_error={:.3g}", error_of({{name, c.expected(name)}}));
          fmt::print("{} {} rel_error={:.3g} limit={:.3g}{} {}\n", c.name, name, error, limit, cost,
                     ok ? "ok" : "FAIL");
        }
      } catch (const std::exception& e) {
        ++failed;
        fmt::print("{} FAIL: {}\n", folder.string(), e.what());
      }
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "golden_runner: {}\n", e.what());
    return 2;
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
