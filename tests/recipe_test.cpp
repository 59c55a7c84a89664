// Recipes of plugins: every field read, every mistake named with plugin and line.
#include "plugin/recipe.h"

#include <gmock/gmock.h>

#include <regex>

#include "plugin/registry.h"
#include "support/io_files.h"

namespace lh::test::recipe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* flow = R"(family: tiny
variant: small
objective: flow
inputs: {text: {source: conditioner.text, mask: conditioner.there, round: 32}, there: {source: mask.text}, size_ids: {source: sizes, values: [height, 1.5]}, t: {source: log_snr, per: token}, control: {source: image.control, as: pixels}, flag: {source: constant, value: 2}}
latents: {channels: 16, downscale: 8, multiple: 2}
tokenizers:
  clip_l: {kind: clip, length: 77, pad: 49407}
  t5: {kind: t5, length: 256, max_length: 512, pad: 0, optional: true}
timestep: {type: logit_normal, shift: 3.0, weighting: cosmap}
sampling:
  sampler: flow_euler
  steps: 28
  guidance: 4.5
  schedule: {kind: flow, dynamic: false, shift: 3.0, shift_twice: true}
  skip_layer_guidance: {layers: [7, 8, 9], scale: 2.5, start: 0.01, end: 0.2}
lora:
  targets: ['blocks\.[0-9]+\.qkv']
  conv_targets: ['res\.[0-9]+']
  text_targets: {clip_l: ['layers\.[0-9]+']}
metadata: {ss_base_model_version: tiny}
)";

constexpr const char* discrete = R"(family: tiny
objective: v_prediction
noise_schedule: {kind: scaled_linear, beta_start: 0.00085, beta_end: 0.012, steps: 1000, zero_terminal_snr: true}
latents: {channels: 4, axes: [time, height, width], downscale: [4, 8, 8]}
inputs: {t: {source: time}}
timestep: {type: uniform}
sampling:
  sampler: euler
  steps: 30
  schedule: {kind: discrete, spacing: leading, offset: 1}
lora: {targets: [a]}
)";

TEST(Recipe, FlowModel) {
  const Recipe r = Recipe::parse(flow, "tiny");
  EXPECT_EQ(r.family, "tiny");
  EXPECT_EQ(r.variant, "small");
  EXPECT_EQ(r.objective, Objective::flow);
  EXPECT_EQ(r.latents.pixel_step(), 16);
  EXPECT_EQ(r.tokenizers.at("t5").max_length, 512);
  EXPECT_TRUE(r.tokenizers.at("t5").optional);
  EXPECT_FALSE(r.tokenizers.at("clip_l").optional);
  EXPECT_EQ(r.timestep.type, "logit_normal");
  EXPECT_EQ(r.timestep.shift, 3);
  EXPECT_EQ(r.timestep.weighting, "cosmap");
  EXPECT_EQ(r.sampling.steps, 28);
  EXPECT_EQ(r.sampling.guidance, 4.5);
  EXPECT_TRUE(r.sampling.schedule.shift_twice);
  EXPECT_EQ(r.sampling.schedule.shift, 3);
  ASSERT_TRUE(r.sampling.skip_layer_guidance);
  EXPECT_THAT(r.sampling.skip_layer_guidance->layers, ElementsAre(7, 8, 9));
  EXPECT_EQ(r.sampling.skip_layer_guidance->scale, 2.5);
  EXPECT_EQ(r.sampling.skip_layer_guidance->start, 0.01);
  EXPECT_EQ(r.sampling.skip_layer_guidance->end, 0.2);
  EXPECT_THAT(r.lora_conv_targets, ElementsAre("res\\.[0-9]+"));
  EXPECT_THAT(r.lora_text_targets.at("clip_l"), ElementsAre("layers\\.[0-9]+"));
  using Source = InputSpec::Source;
  const InputSpec& text = r.inputs.at("text");
  EXPECT_EQ(text.source, Source::conditioner);
  EXPECT_EQ(text.of, "text");
  EXPECT_EQ(text.mask, "there");
  EXPECT_EQ(text.round, 32);
  EXPECT_EQ(text.text(), "conditioner.text");
  EXPECT_EQ(r.inputs.at("there").of, "text");
  ASSERT_EQ(r.inputs.at("size_ids").numbers.size(), 2u);
  EXPECT_EQ(r.inputs.at("size_ids").numbers[0].name, "height");
  EXPECT_EQ(r.inputs.at("size_ids").numbers[1].value, 1.5);
  EXPECT_TRUE(r.inputs.at("t").per_token);
  EXPECT_EQ(r.inputs.at("control").image, InputSpec::Image::pixels);
  EXPECT_EQ(r.inputs.at("flag").value, 2);
  EXPECT_FALSE(r.guided());
  ASSERT_EQ(r.denoisers.size(), 1u);
  EXPECT_EQ(r.denoisers[0].role, "denoiser");
  EXPECT_EQ(r.metadata.at("ss_base_model_version"), "tiny");
}

TEST(Recipe, ImagesThatAModelCanDoWithoutAreInputsOfRunsThatHaveThem) {
  std::string text = flow;
  text.replace(text.find("as: pixels}"), 11,
               "as: pixels}, near: {source: image.near, as: latents, optional: true}, "
               "far: {source: image.far, as: latents, optional: true}");
  Recipe r = Recipe::parse(text, "tiny");
  r.keep_images({"near", "unknown"});
  EXPECT_TRUE(r.inputs.contains("near"));
  EXPECT_FALSE(r.inputs.contains("far"));
  EXPECT_THAT(r.image_keys().needed, ElementsAre("control", "near"));
  EXPECT_THAT(r.image_keys().possible, ElementsAre("far"));
  EXPECT_THAT(
      problems_of_images("sample.images", {{"control", {{"c"}}}, {"near", {{"n"}}}, {"fear", {{"f"}}}}, r.image_keys()),
      ElementsAre("sample.images.fear: the model is given no image of this key. Did you mean far?"));
}

TEST(Recipe, WhereAStepEndsAndWordsInQuotes) {
  std::string text = flow;
  text.replace(text.find("source: log_snr"), 15, "source: time.end");
  text.replace(text.find("pad: 49407"), 10, "template: '{quotes|<|>}', pad: 49407");
  const Recipe r = Recipe::parse(text, "tiny");
  EXPECT_EQ(r.inputs.at("t").source, InputSpec::Source::time);
  EXPECT_EQ(r.inputs.at("t").text(), "time.end");
  EXPECT_TRUE(r.inputs.at("t").per_token);
  EXPECT_EQ(r.tokenizers.at("clip_l").text, "{quotes|<|>}");
}

// Which a text encoder sees; those that a run does not have are no inputs of its graph.
TEST(Recipe, PicturesBesideAPrompt) {
  std::string text = flow;
  text.replace(text.find("optional: true}"), 15,
               "template: '{pictures}{prompt}', pictures: {each: 'no {number}: {places}', place: <p>}}");
  text +=
      "pictures: {a: {source: image.near, encoder: t5, area: 3136, multiple: 28}, "
      "b: {source: image.far, encoder: t5, area: 100, multiple: 5, optional: true}}\n";
  Recipe r = Recipe::parse(text, "tiny");
  EXPECT_EQ(r.tokenizers.at("t5").picture, "no {number}: {places}");
  EXPECT_EQ(r.tokenizers.at("t5").place, "<p>");
  EXPECT_EQ(r.pictures.at("a").area, 3136);
  r.keep_images({});
  EXPECT_THAT(r.image_keys().needed, ElementsAre("control", "near"));
  EXPECT_THAT(r.image_keys().possible, ElementsAre("far"));
  const std::tuple<std::string, const char*, const char*> wrong[] = {
      {"encoder: t5, area: 3136", "encoder: clip_l, area: 3136",
       "`clip_l` has no tokenizer with pictures in its template"},
      {"image.near", "near", "source must be image.<key> or first_frame.<key>, found `near`"},
      {"{pictures}{prompt}", "{prompt}", "pictures needs a template with {pictures}"},
      {": {places}'", ":'", "each must hold {places}"}};
  for (const auto& [what, by, error] : wrong) {
    std::string other = text;
    other.replace(other.find(what), what.size(), by);
    EXPECT_THAT(error_of([&] { Recipe::parse(other, "tiny"); }), HasSubstr(error));
  }
}

// An encoder without a tokenizer sees a picture alone: what a clip begins with, or a further image.
TEST(Recipe, PicturesOfAnEncoderThatOnlySees) {
  std::string text = flow;
  const std::string latents = "latents: {", time = "latents: {axes: [time, height, width], ";
  text.replace(text.find(latents), latents.size(), time);
  text += "pictures: {a: {source: first_frame.start, encoder: eye, side: 224}}\n";
  const Recipe r = Recipe::parse(text, "tiny");
  EXPECT_EQ(r.pictures.at("a").side, 224);
  EXPECT_TRUE(r.pictures.at("a").first_frame);
  EXPECT_TRUE(r.shown_first_frames());
  EXPECT_TRUE(r.encoders().contains("eye"));
  EXPECT_TRUE(r.encoders().contains("clip_l"));
  EXPECT_FALSE(r.image_keys().needed.contains("start"));
  EXPECT_TRUE(r.image_keys_of_samples().needed.contains("start"));
  const std::tuple<std::string, const char*, const char*> wrong[] = {
      {"first_frame.start", "first_frame.", "source must be image.<key> or first_frame.<key>, found `first_frame.`"},
      {"encoder: eye", "encoder: t5", "`t5` has no tokenizer with pictures in its template"},
      {"side: 224", "side: 224, area: 9", "side takes the place of area and multiple"},
      {"side: 224", "side: 224, optional: true", "every clip begins with a frame"},
      {", side: 224", "", "area"},
      {time, latents.c_str(), "`first_frame.start`: latents have no axis of time"}};
  for (const auto& [what, by, error] : wrong) {
    std::string other = text;
    other.replace(other.find(what), what.size(), by);
    EXPECT_THAT(error_of([&] { Recipe::parse(other, "tiny"); }), HasSubstr(error)) << error;
  }
}

// Whose image is the sample's own in training, and one of the user's in samples.
TEST(Recipe, ModelThatPaintsAPartOfAnImage) {
  std::string text = discrete;
  text.replace(text.find("{t: "), 4, "{hole: {source: inpaint.mask}, seen: {source: inpaint.image}, t: ");
  const Recipe r = Recipe::parse(text, "tiny");
  EXPECT_EQ(r.inputs.at("hole").text(), "inpaint.mask");
  EXPECT_TRUE(r.inpaints());
  EXPECT_THAT(r.image_keys().needed, ElementsAre());
  EXPECT_TRUE(r.image_keys().inpaint);
  EXPECT_THAT(r.image_keys_of_samples().needed, ElementsAre("image", "mask"));
  const Recipe other = Recipe::parse(flow, "tiny");
  EXPECT_FALSE(other.inpaints());
  EXPECT_THAT(other.image_keys_of_samples().needed, ElementsAre("control"));
}

TEST(Recipe, ModelOfDiscreteTimesteps) {
  const Recipe r = Recipe::parse(discrete, "tiny");
  EXPECT_EQ(r.objective, Objective::v_prediction);
  EXPECT_EQ(r.noise_schedule.beta_end, 0.012);
  EXPECT_TRUE(r.noise_schedule.zero_terminal_snr);
  EXPECT_EQ(r.sampling.schedule.spacing, ScheduleSpec::Spacing::leading);
  EXPECT_EQ(r.sampling.schedule.offset, 1);
  EXPECT_FALSE(r.sampling.schedule.set_alpha_to_one);
  EXPECT_EQ(r.sampling.guidance, 1);
  EXPECT_FALSE(r.sampling.skip_layer_guidance);
  EXPECT_TRUE(r.latents.time);
  EXPECT_EQ(r.latents.time_downscale, 4);
  EXPECT_EQ(r.latents.downscale, 8);
}

TEST(Recipe, HowFarGuidanceGoes) {
  std::string text = flow;
  EXPECT_EQ(Recipe::parse(text, "tiny").sampling.renorm_cfg, 0);
  EXPECT_EQ(Recipe::parse(text, "tiny").sampling.cfg_trunc_ratio, 1);
  text.replace(text.find("  guidance: 4.5"), 0, "  renorm_cfg: 1.5\n  cfg_trunc_ratio: 0.25\n");
  EXPECT_EQ(Recipe::parse(text, "tiny").sampling.renorm_cfg, 1.5);
  EXPECT_EQ(Recipe::parse(text, "tiny").sampling.cfg_trunc_ratio, 0.25);
}

TEST(Recipe, NegativePromptsMayHaveATemplateOfTheirOwn) {
  std::string text = flow;
  text.replace(text.find("kind: t5"), 0, "negative_template: 'not {prompt}', ");
  const Recipe r = Recipe::parse(text, "tiny");
  EXPECT_EQ(r.tokenizers.at("t5").negative_text, "not {prompt}");
  EXPECT_FALSE(r.tokenizers.at("clip_l").negative_text);
}

TEST(Recipe, Tokenizers) {
  std::string text = flow;
  const std::string before = "{kind: clip, length: 77, pad: 49407}";
  text.replace(text.find(before), before.size(),
               R"({kind: bpe, files: {folder: tokenizer, config: tokenizer_path, bundled: words}, length: 99, drop: 34,
            template: "<u>{system}: {prompt}</u>", system: "Say it", lower: true, strip: true, pad: "<|pad|>",
            begin: [1, "2"], end: [], side: left, mask: true, rows: {tokens: 75, most: 3}, rules: {normalizer: {type: NFC, flag: false, text: "0"}}})");
  const TokenizerSpec spec = Recipe::parse(text, "tiny").tokenizers.at("clip_l");
  EXPECT_EQ(spec.kind, "bpe");
  EXPECT_EQ(spec.files.folder, "tokenizer");
  EXPECT_EQ(spec.files.config, "tokenizer_path");
  EXPECT_EQ(spec.files.bundled, "words");
  EXPECT_EQ(spec.text, "<u>{system}: {prompt}</u>");
  EXPECT_EQ(spec.system, "Say it");
  EXPECT_EQ(spec.drop, 34);
  EXPECT_TRUE(spec.lower && spec.strip && spec.mask);
  EXPECT_EQ(spec.pad, TokenName("<|pad|>"));
  EXPECT_EQ(spec.begin, (std::vector<TokenName>{1, "2"}));
  EXPECT_EQ(spec.end, std::vector<TokenName>());
  EXPECT_EQ(spec.side, TokenizerSpec::Side::left);
  EXPECT_EQ(spec.row_tokens, 75);
  EXPECT_EQ(spec.max_rows, 3);
  EXPECT_EQ(spec.rows, 1);
  EXPECT_EQ(spec.rules, R"({"normalizer":{"flag":false,"text":"0","type":"NFC"}})");
  EXPECT_EQ(Recipe::parse(flow, "tiny").tokenizers.at("clip_l").pad, TokenName(49407));
}

// "plugin tiny: recipe:3:12: what" as "plugin tiny: line 3: what".
std::string without_column(const std::string& error) {
  return std::regex_replace(error, std::regex("recipe:([0-9]+):[0-9]+: "), "line $1: ");
}

TEST(Recipe, MistakesAreNamedWithPluginAndPlace) {
  std::string score = flow;
  score.replace(score.find("objective: flow"), 15, "objective: score");
  EXPECT_EQ(error_of([&] { Recipe::parse(score, "tiny"); }),
            "plugin tiny: recipe:3:12: objective `score` is unknown; known: flow, epsilon, v_prediction");
  struct Row {
    const char *text, *what, *by, *error;
  };
  const Row rows[] = {
      {flow,
       "variant:", "varient:", "line 2: unknown field `varient` in the recipe. Did you mean `variant`? Known: family"},
      {flow, "objective: flow", "objective: score",
       "line 3: objective `score` is unknown; known: flow, epsilon, v_prediction"},
      {flow, "family: tiny\n", "", "line 1: the recipe needs the field `family`"},
      {flow, "variant: small", "family: other", "line 2: family: set twice, first in line 1"},
      {flow, "source: conditioner.text", "source: encoder.text",
       "line 4: source `encoder.text` is unknown; known: conditioner.<name>"},
      {flow, "source: conditioner.text", "source: conditioner", "line 4: source `conditioner` is unknown"},
      {flow, "source: mask.text", "source: mask.size_ids",
       "line 4: `mask.size_ids`: expected an input from the conditioner that has a mask"},
      {flow, "mask: conditioner.there", "mask: there", "line 4: mask must be an output of the conditioner"},
      {flow, "values: [height, 1.5]", "values: [depth]", "line 4: value `depth` is unknown"},
      {flow, "per: token", "per: pixel", "line 4: per `pixel` is unknown"},
      {flow, "as: pixels", "as: text", "line 4: as `text` is unknown"},
      {flow, "source: image.control, as: pixels", "source: inpaint.photo",
       "line 4: source `inpaint.photo` is unknown; known: inpaint.image, inpaint.mask"},
      {flow, "source: image.control, as: pixels", "source: first_frame.control",
       "line 4: `first_frame.control`: latents have no axis of time"},
      {flow, "source: image.control, as: pixels", "source: first_frame.control, as: end",
       "line 4: as `end` is unknown"},
      {flow, "source: image.control, as: pixels", "source: given.control",
       "line 4: `given.control`: expected an input first_frame.control beside it"},
      {flow, "source: log_snr", "source: time.begin", "line 4: source `time.begin` is unknown; known: time, time.end"},
      {flow, "source: log_snr", "source: sigma.end",
       "line 4: source `sigma.end` is unknown; known: conditioner.<name>, "},
      {flow, "flag: {source: constant, value: 2}", "flag: {source: constant}",
       "line 4: input `flag` needs the field `value`"},
      {flow, "flag: {source: constant, value: 2}", "flag: {source: guidance, none: 1}",
       "line 4: none must be below 0, where no strength is"},
      {flow, "flag:", "latents:", "line 4: `latents` always are the noisy latents"},
      {discrete, "axes: [time, height, width]", "axes: [height, time]", "line 4: axes must be"},
      {discrete, "downscale: [4, 8, 8]", "downscale: [8, 8]", "line 4: downscale has 2 numbers for 3 axes"},
      {discrete, "downscale: [4, 8, 8]", "downscale: [4, 8, 16]",
       "line 4: height and width must have the same downscale"},
      {flow, "channels: 16", "channels: 0", "line 5: channels must be an integer, 1 to 4096, found 0"},
      {flow, "channels: 16", "channels: 1.5", "line 5: channels must be an integer, 1 to 4096, found 1.5"},
      {flow, "kind: clip", "kind: ../clip", "line 7: kind must be a name of letters, digits, '_', '-' and '.'"},
      {flow, "pad: 49407", "padding: 49407", "line 7: unknown field `padding` in a tokenizer. Known: kind, files"},
      {flow, "pad: 49407", "pad: -1", "line 7: pad: -1 is no id of a token"},
      {flow, "length: 77", "length: 0", "line 7: length must be an integer, 1 to 65536, found 0"},
      {flow, ", length: 77", "", "line 7: a tokenizer needs the field `length`"},
      {flow, "pad: 49407", "template: 'a {text}'", "line 7: template must hold {prompt}, the place of the prompt"},
      {flow, "pad: 49407", "template: '{quotes|a}'", "line 7: {quotes|...} must be {quotes|<words before each>|"},
      {flow, "pad: 49407", "negative_template: none",
       "line 7: negative_template must hold {prompt}, the place of the prompt"},
      {flow, "pad: 49407", "drop: 2, negative_template: '{prompt}'",
       "line 7: negative_template goes neither with pict"},
      {flow, "pad: 49407", "system: be brief", "line 7: system needs a template with {system}"},
      {flow, "pad: 49407", "side: both", "line 7: side `both` is unknown; known: right, left"},
      {flow, "pad: 49407", "drop: 77", "line 7: drop must be an integer, 0 to 76, found 77"},
      {flow, "pad: 49407", "rows: {tokens: 78, most: 3}", "line 7: tokens must be an integer, 1 to 77, found 78"},
      {flow, "pad: 49407", "rows: {tokens: 75, most: 1}", "line 7: most must be an integer, 2 to 1000, found 1"},
      {flow, "pad: 49407", "rows: {tokens: 75}", "line 7: rows needs the field `most`"},
      {flow, "pad: 49407", "files: {folder: a/b}", "line 7: folder must be a name"},
      {flow, "pad: 49407", "files: {path: a}", "line 7: unknown field `path` in files. Known: folder, config, bundled"},
      {flow, "pad: 49407", "rules: [a]", "line 7: rules must be a mapping, found a list"},
      {flow, "max_length: 512", "max_length: 100", "line 8: max_length must be an integer, 256 to 65536, found 100"},
      {flow, "type: logit_normal", "type: lognormal", "line 9: timestep type `lognormal` is unknown"},
      {flow, "weighting: cosmap", "weighting: min_snr", "line 9: timestep weighting `min_snr` is unknown"},
      {flow, "type: logit_normal", "type: resolution_shift", "line 9: type resolution_shift needs the field"},
      {flow, "type: logit_normal", "type: logit_normal, scale: 1.5",
       "line 9: scale belongs to the types sigmoid, shift and resolution_shift"},
      {flow, "type: logit_normal", "type: sigmoid, scale: 0", "line 9: scale must be a number, more than 0"},
      {flow, "weighting: cosmap",
       "resolution_shift: {base_tokens: 1024, base: 0, max_tokens: 4096, max: 1, growth: fast}",
       "line 9: growth `fast` is unknown; known: linear, logarithmic"},
      {flow, "weighting: cosmap",
       "resolution_shift: {base_tokens: 0, base: 0, max_tokens: 4096, max: 1, growth: logarithmic}",
       "line 9: base_tokens must be"},
      {flow, "kind: flow, ", "kind: discrete, ", "line 14: schedule kind discrete does not fit objective flow"},
      {flow, "dynamic: false", "dynamic: true", "line 14: dynamic: true needs timestep.resolution_shift"},
      {flow, "type: logit_normal", "type: logit_normal, even: 0.1",
       "line 9: stretch and even belong to the type resolution_shift"},
      {flow, "type: logit_normal", "type: logit_normal, stretch: [0.9, 0.1]", "line 9: stretch must be [low, high]"},
      {flow, "type: logit_normal", "type: logit_normal, stretch: [0, 0.1]", "line 9: a rank of stretch"},
      {flow, "shift: 3.0, shift_twice", "spacing: leading, shift_twice",
       "line 14: unknown field `spacing` in a flow schedule"},
      {flow, "layers: [7, 8, 9]", "layers: []", "line 15: layers must be a list of block numbers"},
      {flow, "[7, 8, 9]", "[7, x]", "line 15: an item of layers must be an integer, at least 0, found x"},
      {flow, "end: 0.2", "end: 0.001", "line 15: end must be a number, 0.01 to 1, found 0.001"},
      {flow, "flag: {source: constant, value: 2}", "flag: {source: guidance}",
       "line 15: skip_layer_guidance does not go with an input that is given the guidance"},
      {flow, "'res\\.[0-9]+'", "'res['", "line 18: lora.conv_targets: `res[` is no regular expression"},
      {flow, "{clip_l: ['layers", "{clip_x: ['layers", "line 19: lora.text_targets: `clip_x` has no tokenizer"},
      {flow, "objective: flow", "objective: flow\nnoise_schedule: {kind: linear, beta_start: 0.1, beta_end: 0.2}",
       "line 4: noise_schedule belongs to epsilon and v_prediction models"},
      {flow, "objective: flow", "objective: flow\nnoise: {scale: 0}", "line 4: scale must be a number, more than 0"},
      {flow, "objective: flow", "objective: flow\nnoise: {clip: 0}", "line 4: clip must be a number, more than 0"},
      {discrete, "objective: v_prediction", "objective: v_prediction\nnoise: {scale: 2}",
       "line 3: noise belongs to flow models"},
      {discrete, "v_prediction", "epsilon", "line 3: zero_terminal_snr needs objective v_prediction"},
      {discrete, "beta_end: 0.012", "beta_end: 0.0001",
       "line 3: beta_end must be a number, at least 0.00085 and less than 1"},
      {discrete, "kind: scaled_linear", "kind: cosine", "line 3: noise_schedule kind `cosine` is unknown"},
      {discrete, "spacing: leading", "spacing: trailing", "line 10: offset belongs to leading spacing"},
      {discrete, "spacing: leading", "spacing: linspace", "line 10: spacing `linspace` is unknown"},
      {discrete, "{type: uniform}", "{type: uniform, weighting: cosmap}",
       "line 6: weighting and resolution_shift belong"},
      {discrete, "targets: [a]", "targets: a", "line 11: lora.targets must be a list, found a"},
      {discrete, "[a]}", "[a]", "line 12: not YAML: "},
  };
  for (const Row& row : rows) {
    std::string text = row.text;
    const size_t at = text.find(row.what);
    ASSERT_NE(at, text.npos) << row.what;
    text.replace(at, std::string(row.what).size(), row.by);
    EXPECT_THAT(without_column(error_of([&] { Recipe::parse(text, "tiny"); })),
                StartsWith(std::string("plugin tiny: ") + row.error))
        << text;
  }
  std::string without = discrete;
  without.erase(without.find("noise_schedule"), without.find("latents") - without.find("noise_schedule"));
  EXPECT_THAT(without_column(error_of([&] { Recipe::parse(without, "tiny"); })),
              HasSubstr("line 2: objective v_prediction needs a noise_schedule"));
}

}  // namespace
}  // namespace lh::test::recipe_test
