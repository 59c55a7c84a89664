// Models of several experts, each for its share of the noise levels: samples that all of them make in turn, and jobs
// that train one after another.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "compile/compile.h"
#include "compile/other_experts.h"
#include "config/load.h"
#include "core/error.h"
#include "core/random.h"
#include "data/further_images.h"
#include "diffusion/guidance.h"
#include "encode/latent_shape.h"
#include "encode/step_shapes.h"
#include "encode/text_encoding.h"
#include "io/safetensors.h"
#include "sample/sample_set.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/image_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/video_files.h"
#include "support/wan_shapes.h"

namespace lh::test::experts_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

// The expert for less noise is the other one with its two blocks in each other's places.
std::string swapped(const std::string& name) {
  const size_t at = name.find("blocks.");
  if (at == name.npos || name.find("head") != name.npos || name.starts_with("vae.") || name.starts_with("text_"))
    return name;
  std::string other = name;
  other[at + 7] = name[at + 7] == '0' ? '1' : '0';
  return other;
}

void write_low(const fs::path& from, const fs::path& to) {
  std::vector<Given> tensors = tensors_of(from);
  for (Given& given : tensors) given.name = swapped(given.name);
  write_file(to, tensors);
}

// ---- samples, bit for bit beside two models that know nothing of each other

constexpr int64_t text_rows = 12;

struct TwoExperts {
  TwoExperts() {
    write_file(dir / "high.safetensors", filled(small_wan.shapes()));
    write_low(dir / "high.safetensors", dir / "low.safetensors");
  }
  ModelConfig of(const std::string& which) const {
    ModelConfig config = single(dir / (which + ".safetensors"));
    config.given["variant"] = {.text = "wan2.2-" + which + "-noise"};
    return config;
  }
  // With the file of the other one.
  ModelConfig with_other(const std::string& which) const {
    const std::string other = which == "high" ? "low" : "high";
    ModelConfig config = of(which);
    config.given[other + "_noise_path"] = {.text = (dir / (other + ".safetensors")).string()};
    return config;
  }
  TempDir dir;
};

// What a model alone says of latents.
class Alone {
 public:
  Alone(Device& device, const ModelConfig& config, const SampleRequest& request)
      : model_(built_plugins(), config, ""), graph_(graph_of(request)), weights_(device, model_.checkpoint(), graph_) {
    program_ = OwnedProgram(device, graph_, weights_.bind(graph_), "one expert");
  }
  HostTensor say(const HostTensor& x, double sigma, const HostTensor& text) {
    const auto time = static_cast<float>(sigma);
    program_->set_input("latents", x);
    program_->set_input("text", text);
    program_->set_input("timestep", HostTensor::from_floats({1}, std::span(&time, 1)));
    program_->run();
    return program_->output("output");
  }

 private:
  Graph graph_of(const SampleRequest& request) const {
    const Sizes sizes = StepShape{request.bucket(), {{"text_length", text_rows}}}.sizes(model_.recipe().latents);
    return build_sample_graph(model_, sizes, no_adapter, DType::f32);
  }
  Model model_;
  Graph graph_;
  Weights weights_;
  OwnedProgram program_;
};

// Samples that were made with both, of whichever one is opened.
struct Made {
  std::vector<HostTensor> latents;
  std::vector<size_t> used;
};

class SamplesOfExperts : public testing::TestWithParam<const char*> {
 protected:
  Device device_{tested_device()};
  TwoExperts files_;
  SampleConfig config_{.sampler = GetParam(), .neg = "blurred", .width = 32, .height = 32, .sample_steps = 6};
  const HostTensor cat_ = ramp({1, text_rows, small_wan.text}, 1), blurred_ = ramp({1, text_rows, small_wan.text}, 2);

  std::vector<SampleRequest> requests(const Recipe& recipe, const std::vector<LevelShare>& shares) const {
    SampleItem wide("a cat");
    wide.width = 48;
    return {complete_request(config_, recipe, "a cat", 5, shares),
            complete_request(config_, recipe, "a cat", 6, shares), complete_request(config_, recipe, wide, 7, shares)};
  }

  Made make(const std::string& opened) {
    const Model model(built_plugins(), files_.with_other(opened), "");
    OtherExperts experts(built_plugins(), files_.with_other(opened), model, {});
    EXPECT_EQ(experts.text(), "levels above 0.875 by high_noise, the others by low_noise");
    const auto wanted = requests(model.recipe(), experts.shares());
    TextEncoding text(device_, model, DType::f32, {});
    text.give(wanted[0].wanted(model.recipe()), {{"text", cat_}});
    text.give(wanted[0].unwanted(model.recipe()), {{"text", blurred_}});
    SampleSet set(device_, model, no_adapter, DType::f32, choose_sampler(built_plugins(), model.recipe(), config_),
                  wanted, {{"text_length", text_rows}}, {}, experts);
    Weights weights(device_, model.checkpoint(), set.graph());
    const DeviceMemory arena(device_, set.memory().arena, "activations");
    set.bind(arena.data(), weights, nullptr);
    Made made{.latents = std::vector<HostTensor>(wanted.size()), .used = {}};
    set.denoise(wanted, text,
                {.images = [](const SampleRequest&) { return NamedTensors{}; },
                 .stop = [] { return false; },
                 .use =
                     [&](size_t share) {
                       made.used.push_back(share);
                       experts.use(share, device_, weights, set.graph());
                     },
                 .made = [&](size_t i, const HostTensor& latents) { made.latents[i] = latents; }});
    return made;
  }
};

TEST_P(SamplesOfExperts, AreThoseOfEachOnItsLevels) {
  const Model high(built_plugins(), files_.of("high"), ""), low(built_plugins(), files_.of("low"), "");
  const std::vector<LevelShare> shares{{0.875, &high, "high_noise"}, {0, &low, "low_noise"}};
  const SamplerChoice sampler = choose_sampler(built_plugins(), high.recipe(), config_);
  std::vector<HostTensor> expected, alone;
  for (const SampleRequest& request : requests(high.recipe(), shares)) {
    Alone above(device_, files_.of("high"), request), below(device_, files_.of("low"), request);
    const LatentSpec& latents = high.recipe().latents;
    const Sizes sizes = latent_sizes(latents, request.bucket());
    const SamplingSchedule schedule = schedule_of(sampler, high.recipe(), request.steps, latent_tokens(latents, sizes));
    const Shape shape = latent_shape(latents, sizes, 1, latents.channels);
    HostTensor noise(Desc{DType::f32, shape});
    Random(request.seed, Purpose::sample_noise, 0, 0).fill_normal(noise.as<float>());
    const auto run = [&](bool both) {
      int64_t noisy = 0, others = 0;
      SamplerRun steps(device_, *sampler.sampler, Objective::flow, schedule, shape);
      HostTensor made =
          steps.run(noise, {.model = [&](const HostTensor& x, const SamplingLevel& at, int64_t step) -> ModelSaid {
                              const bool is_noisy = !both || schedule.level(step).time > 0.875;
                              ++(is_noisy ? noisy : others);
                              Alone& model = is_noisy ? above : below;
                              const HostTensor without = model.say(x, at.time, blurred_);
                              return {classifier_free(model.say(x, at.time, cat_), without, is_noisy ? 4 : 3), without};
                            },
                            .noise = {},
                            .proceed = [](int64_t, const HostTensor&) { return true; }});
      EXPECT_GT(noisy, 1);
      EXPECT_EQ(others > 1, both);
      return made;
    };
    expected.push_back(run(true));
    alone.push_back(run(false));
  }
  for (const char* opened : {"high", "low"}) {
    SCOPED_TRACE(opened);
    const Made made = make(opened);
    EXPECT_THAT(made.used, ElementsAre(0, 1));  // all samples, and then all
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(made.latents[i].data, expected[i].data) << i;
      EXPECT_NE(made.latents[i].data, alone[i].data) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Samplers, SamplesOfExperts, testing::Values("uni_pc", "heun"),
                         [](const auto& info) { return std::string(info.param); });

// ---- which file is whose

TEST(Experts, AreFoundInADirectoryAndByKeys) {
  const TempDir dir;
  for (const char* folder : {"transformer", "transformer_2"}) fs::create_directories(dir / "both" / folder);
  const std::vector<PluginKeys> all = built_plugins().model_keys();
  const Experts& experts = std::ranges::find(all, "wan", &PluginKeys::plugin)->experts;
  ASSERT_EQ(experts.each.size(), 2u);
  const Expert &high = experts.each[0], &low = experts.each[1];
  const auto with = [](const fs::path& path, const std::string& variant, std::map<std::string, std::string> keys = {}) {
    ModelConfig config = single(path);
    config.given["variant"] = {.text = variant};
    for (const auto& [key, text] : keys) config.given[key] = {.text = text};
    return config;
  };
  for (const char* variant : {"wan2.2", "wan2.2-high-noise", "wan2.2-low-noise"}) {
    const ModelConfig folder = with(dir / "both", variant);
    EXPECT_EQ(experts.weights_of(high, folder), dir / "both") << variant;
    EXPECT_EQ(experts.weights_of(low, folder), dir / "both/transformer_2") << variant;
  }
  const ModelConfig second = experts.alone(low, with(dir / "both", "wan2.2"));
  EXPECT_EQ(second.name_or_path, dir / "both/transformer_2");
  EXPECT_EQ(second.given.at("extras_name_or_path").text, (dir / "both").string());
  EXPECT_EQ(second.given.at("high_noise_path").text, (dir / "both").string());
  EXPECT_EQ(second.given.at("variant").text, "wan2.2-low-noise");
  // Of both together name_or_path is the one without a key.
  EXPECT_EQ(experts.weights_of(high, with("h", "wan2.2", {{"low_noise_path", "l"}})), "h");
  EXPECT_EQ(experts.weights_of(low, with("l", "wan2.2", {{"high_noise_path", "h"}})), "l");
  EXPECT_EQ(experts.weights_of(low, with("h", "wan2.2")), "");
  EXPECT_EQ(experts.weights_of(low, with("h", "wan2.2-high-noise")), "");
  EXPECT_EQ(experts.weights_of(high, with("l", "wan2.2-low-noise", {{"high_noise_path", "h"}})), "h");
}

TEST(Experts, MistakesOfAPluginAreNamed) {
  const auto error = [](const std::string& experts) {
    const std::string yaml =
        "components: {denoiser: {marker: a}}\nsettings: {variant: {one_of: [both, high, low], help: h}}\n";
    return error_of([&] { CheckpointSpec::parse(yaml + "experts: " + experts, "mine"); });
  };
  EXPECT_EQ(error("{setting: variant, together: both, each: {h: {is: high}, l: {is: low, folder: second}}}"), "");
  EXPECT_THAT(error("{setting: kind, together: both, each: {h: {is: high}, l: {is: low}}}"),
              HasSubstr("3:20: `kind` is no setting of this model with `one_of`"));
  EXPECT_THAT(error("{setting: variant, together: all, each: {h: {is: high}, l: {is: low}}}"),
              HasSubstr("`all` is no word of the setting `variant`"));
  EXPECT_THAT(error("{setting: variant, together: both, each: {h: {is: high}}}"), HasSubstr("two at least"));
  EXPECT_THAT(error("{setting: variant, together: both, each: {lora: {is: high}, l: {is: low}}}"),
              HasSubstr("`model.lora_path`, which this name makes, is a key already"));
}

// ---- jobs

// Two steps of each on one image, a sample before each of them and at the end.
class ExpertJob {
 public:
  ExpertJob() {
    fs::create_directories(dir_ / "photos");
    write_file(dir_ / "photos/a.png", encode_png(film_frame(3)));
    put(dir_ / "photos/a.txt", "a photo");
  }
  static const fs::path& models() {
    static const TempDir dir;
    static const bool written = [] {
      write_small_wan(dir / "high.safetensors");
      write_low(dir / "high.safetensors", dir / "low.safetensors");
      write_small_wan_i2v(dir / "i2v.safetensors");
      return true;
    }();
    (void)written;
    return dir.path();
  }
  static std::string model(const std::string& name) { return (models() / (name + ".safetensors")).string(); }

  // more: of `model`; samples: of `sample`.
  std::string config(const std::string& name, const std::string& file, const std::string& more,
                     const std::string& samples, int64_t steps = 2) const {
    return fmt::format(R"(name: {}
training_folder: {}/runs
device: {}
model: {{name_or_path: {}, tokenizer_path: {}/share/tokenizers/t5, {}}}
network: {{linear: 2}}
datasets: [{{folder_path: {}/photos, resolution: [32]}}]
train: {{steps: {}, lr: 1e-2, dtype: fp32}}
sample: {{{}width: 32, height: 32, sample_steps: 3, prompts: [a cat]}}
save: {{save_every: 1, dtype: float32}}
)",
                       name, dir_.path().string(), tested_device(), file, source_dir(), more, dir_.path().string(),
                       steps, samples);
  }
  HostResult train(const std::string& text, const std::vector<std::string>& more = {}) const {
    put(dir_ / "train.yaml", text);
    std::vector<std::string> words{"train", "--config", (dir_ / "train.yaml").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_host(words);
  }
  std::string both(int64_t steps = 2) const {
    return config("dog", model("high"), fmt::format("low_noise_path: {}, variant: wan2.2", model("low")),
                  "sample_every: 1, sample_at_start: true, ", steps);
  }
  fs::path run(const std::string& name) const { return dir_ / "runs" / name; }
  fs::path lora(const std::string& name) const { return run(name) / (name + ".safetensors"); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

std::map<std::string, std::vector<std::byte>> tensors_in(const fs::path& file) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const Given& given : tensors_of(file)) all[given.name] = given.tensor.data;
  return all;
}

// Each is trained as it is alone and without any sample, so what others' weights were read for leaves no trace; and a
// job that stopped on the way goes on where it was.
TEST(ExpertJobs, TrainEachAsARunOfItsOwn) {
  const ExpertJob job;
  const std::string both = job.both();
  const HostResult plan = job.train(both, {"--dry-run"});
  EXPECT_EQ(plan.code, 0) << plan.output;
  EXPECT_THAT(plan.output, AllOf(HasSubstr("run        " + job.run("dog_high_noise").string()),
                                 HasSubstr("run        " + job.run("dog_low_noise").string()),
                                 HasSubstr("levels above 0.875 by high_noise, the others by low_noise")));
  EXPECT_FALSE(fs::exists(job.run("dog_high_noise")));

  expect_trained(job.train(both));
  std::map<std::string, std::map<std::string, std::vector<std::byte>>> expected;
  for (const char* which : {"high", "low"}) {
    const std::string name = fmt::format("alone_{}", which);
    expect_trained(job.train(job.config(name, ExpertJob::model(which), fmt::format("variant: wan2.2-{}-noise", which),
                                        "sample_every: 0, ")));
    expected[which] = tensors_in(job.lora(name));
  }
  EXPECT_NE(expected["high"], expected["low"]);
  const auto expect_both = [&] {
    for (const char* which : {"high", "low"})
      EXPECT_EQ(tensors_in(job.lora(fmt::format("dog_{}_noise", which))), expected[which]) << which;
  };
  expect_both();

  // A sample before the first step of the second has the first one's LoRA.
  const auto sample = [&](const std::string& name) {
    const fs::path out = job.dir() / (name + ".png");
    std::vector<std::string> words{"sample", "--config", (job.dir() / "train.yaml").string(), "--out", out.string()};
    if (name == "with") words.insert(words.end(), {"--lora", job.lora("dog_high_noise").string()});
    put(job.dir() / "train.yaml",
        job.config("dog", ExpertJob::model("low"),
                   "variant: wan2.2-low-noise, high_noise_path: " + ExpertJob::model("high"), ""));
    const HostResult result = run_host(words);
    EXPECT_EQ(result.code, 0) << result.output;
    return pixels_of(out);
  };
  const std::vector<uint8_t> with = sample("with");
  EXPECT_EQ(pixels_of(job.run("dog_low_noise") / "samples/000000000_0.png"), with);
  EXPECT_NE(sample("without"), with);

  // Again, or stopped between the two, or in the first.
  HostResult again = job.train(both);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.output, HasSubstr("dog_high_noise: holds an earlier run. Continue it with --resume"));
  fs::remove_all(job.run("dog_low_noise"));
  again = expect_trained(job.train(both, {"--resume"}));
  EXPECT_THAT(again.output, AllOf(HasSubstr("dog_high_noise is trained: "), HasSubstr("no checkpoint in ")));
  expect_both();
  fs::remove_all(job.run("dog_low_noise"));
  fs::remove(job.lora("dog_high_noise"));
  fs::remove(job.run("dog_high_noise") / "state/000000002.safetensors");
  again = expect_trained(job.train(both, {"--resume"}));
  EXPECT_THAT(again.output, AllOf(HasSubstr("resuming after step 1"), Not(HasSubstr("is trained"))));
  expect_both();
  fs::remove(job.run("dog_low_noise") / "state/000000002.safetensors");
  again = expect_trained(job.train(both, {"--resume"}));
  EXPECT_THAT(again.output, AllOf(HasSubstr("dog_high_noise is trained: "), HasSubstr("resuming after step 1")));
  expect_both();
}

TEST(ExpertJobs, AreStoppedInTheOneThatIsTrained) {
  const ExpertJob job;
  put(job.dir() / "train.yaml", job.both(100000));
  HostProcess process({"train", "--config", (job.dir() / "train.yaml").string()});
  while (process.running() && !fs::exists(job.run("dog_high_noise") / "samples/000000001_0.png"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  process.send(SIGINT);
  const HostResult result = process.wait();
  EXPECT_EQ(result.code, exit_interrupted) << result.output;
  EXPECT_FALSE(fs::exists(job.run("dog_low_noise")));
}

TEST(ExpertJobs, FilesThatDoNotFitAreNamed) {
  const ExpertJob job;
  const auto error = [&](const std::string& more, const std::vector<std::string>& words = {"--dry-run"}) {
    const HostResult result = job.train(job.config("dog", ExpertJob::model("high"), more, "sample_every: 1, "), words);
    EXPECT_NE(result.code, 0) << result.output;
    return result.output;
  };
  EXPECT_THAT(error("variant: wan2.2"),
              HasSubstr("model.low_noise_path: missing: wan2.2-low-noise is low_noise of several experts"));
  const HostResult repository =
      job.train(job.config("dog", "Wan-AI/Wan2.2-T2V-A14B-Diffusers", "variant: wan2.2", ""), {"--dry-run"});
  EXPECT_THAT(repository.output, HasSubstr("model.name_or_path: Wan-AI/Wan2.2-T2V-A14B-Diffusers: no such file or "
                                           "directory. It looks like the name of a repository"));
  EXPECT_THAT(error("variant: wan2.2, low_noise_path: nowhere.safetensors"), HasSubstr("nowhere.safetensors"));
  for (const char* variant : {"wan2.2", "wan2.2-high-noise"})
    EXPECT_THAT(error(fmt::format("variant: {}, low_noise_path: {}", variant, ExpertJob::model("i2v"))),
                AllOf(HasSubstr("model.low_noise_path: "), HasSubstr("i2v.safetensors: \"patch_embedding.weight\": "
                                                                     "expected [256, 16, 1, 2, 2], as the other")));
  put(job.dir() / "train.yaml", job.config("dog", ExpertJob::model("high"), "variant: wan2.2-high-noise", ""));
  const HostResult alone = run_host({"sample", "--config", (job.dir() / "train.yaml").string(), "--lora",
                                     "low_noise=" + ExpertJob::model("low"), "--out", (job.dir() / "a.png").string()});
  EXPECT_THAT(alone.output, HasSubstr("is for wan2.2-low-noise, and samples are made with wan2.2-high-noise alone"));
  const std::string both = fmt::format("variant: wan2.2, low_noise_path: {}", ExpertJob::model("low"));
  EXPECT_THAT(error(both + ", lora_path: a.safetensors"), HasSubstr("model.lora_path: a.safetensors is of one expert"));
  EXPECT_THAT(error(both, {"--resume", "elsewhere"}), HasSubstr("--resume elsewhere: is for one run"));
}

// ---- ai-toolkit's jobs

Config read_job(const std::string& arch, const std::string& kwargs, const std::string& network = "",
                const std::string& datasets = "{folder_path: photos}") {
  const std::vector<PluginKeys> plugins = built_plugins().model_keys();
  return parse_config(fmt::format(R"(job: extension
config:
  name: dog
  process:
    - type: sd_trainer
      network: {{type: lora, linear: 4, {}}}
      datasets: [{}]
      train: {{steps: 2001, noise_scheduler: flowmatch, switch_boundary_every: 10}}
      save: {{save_every: 250}}
      sample: {{sample_every: 100, prompts: [a cat]}}
      model: {{name_or_path: m, arch: "{}", model_kwargs: {{{}}}}}
)",
                                  network, datasets, arch, kwargs),
                      "job.yaml", {.plugins = &plugins});
}

// The weights themselves among them, where name_or_path is no file, as in ai-toolkit.
TEST(AiToolkit, KeysOfAModelMayBeItsWeights) {
  const Config config = read_job("ltx2.5", "dit_path: d, text_encoder_path: t, video_vae_path: v, audio_vae_path: a");
  EXPECT_EQ(config.plugin, "ltx2");
  EXPECT_EQ(config.model.name_or_path, "d");
  for (const auto& [key, text] :
       {std::pair{"gemma4_path", "t"}, std::pair{"tokenizer_path", "t"}, std::pair{"vae_path", "v"},
        std::pair{"audio_vae_path", "a"}, std::pair{"vocoder_path", "a"}})
    EXPECT_EQ(config.model.given.at(key).text, text) << key;
  EXPECT_EQ(config.model.given.size(), 5u);
}

// Of ai-toolkit's own keys of a model, a file.
TEST(AiToolkit, KeysOfAModelMayBeFilesOfItsPlugin) {
  const Config config = read_job("hidream", "llama_model_path: l");
  EXPECT_EQ(config.plugin, "hidream");
  for (const char* key : {"llama3_path", "tokenizer_path"}) EXPECT_EQ(config.model.given.at(key).text, "l") << key;
  EXPECT_FALSE(read_job("hidream", "llama_model_path: null").model.given.contains("llama3_path"));
  EXPECT_THAT(error_of([] { read_job("flux", "llama_model_path: l"); }),
              HasSubstr("model.model_kwargs: not supported: give settings"));
}

// Of the datasets that say so, and of the same model: others may have clips of text alone, or photos.
TEST(AiToolkit, ClipsMayBeginWithTheirFirstFrame) {
  const Config config =
      read_job("wan22_5b", "", "", "{folder_path: a, num_frames: 5, do_i2v: true}, {folder_path: b, num_frames: 5}");
  EXPECT_EQ(config.model.given.at("variant").text, "wan2.2-ti2v-5b");
  EXPECT_TRUE(config.datasets.at(0).do_i2v);
  EXPECT_FALSE(config.datasets.at(1).do_i2v);
  EXPECT_THAT(keys_of_images(config), testing::ElementsAre(own_first_frame_key));
  EXPECT_THAT(keys_of_images(read_job("wan22_5b", "", "", "{folder_path: photos, do_i2v: true}")), testing::IsEmpty())
      << "no clips";
}

TEST(ExpertJobs, OfAiToolkitDivideTheirSteps) {
  for (const char* arch : {"wan22_14b", "wan22_14b:t2v", "wan22_14b_i2v"}) {
    SCOPED_TRACE(arch);
    for (const char* kwargs : {"", "train_high_noise: true, train_low_noise: true"}) {
      const Config both = read_job(arch, kwargs);
      EXPECT_EQ(both.plugin, "wan");
      EXPECT_EQ(both.model.given.at("variant").text, "wan2.2");
      EXPECT_EQ(both.train.steps, 1001);
      EXPECT_EQ(both.save.save_every, 125);
      EXPECT_EQ(both.sample.sample_every, 50);
      EXPECT_THAT(both.notes, testing::Contains(HasSubstr("train.steps: the 2001 of ai-toolkit are of 2 experts")));
    }
    for (const auto& [kwargs, variant] :
         {std::pair{"train_high_noise: true, train_low_noise: false", "high"}, {"train_high_noise: false", "low"}}) {
      const Config one = read_job(arch, kwargs);
      EXPECT_EQ(one.model.given.at("variant").text, fmt::format("wan2.2-{}-noise", variant));
      EXPECT_EQ(one.train.steps, 2001);
    }
  }
  EXPECT_THAT(error_of([] { read_job("wan22_14b", "train_high_noise: false, train_low_noise: false"); }),
              HasSubstr("model.model_kwargs: no expert of the model is left to train"));
  EXPECT_THAT(error_of([] { read_job("wan22_14b", "train_middle: true"); }),
              HasSubstr("model.model_kwargs: not supported: give settings"));
  EXPECT_THAT(error_of([] { read_job("wan22_14b", "", "split_multistage_loras: false"); }),
              HasSubstr("network.split_multistage_loras: not supported: each expert of a model has a LoRA file"));
}

}  // namespace
}  // namespace lh::test::experts_test
