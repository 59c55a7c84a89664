// Guidance: how it is chosen and what it computes. Denoisers under guidance: denoiser_test.cpp.
#include "diffusion/guidance.h"

#include <gmock/gmock.h>

#include <cmath>

#include "sample/sampling.h"
#include "support/io_files.h"

namespace lh::test::guidance_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

Recipe recipe_with(bool distilled, bool skips) {
  Recipe recipe;
  recipe.family = "tiny";
  if (distilled) recipe.inputs["strength"].source = InputSpec::Source::guidance;
  recipe.sampling.guidance = 4.5;
  if (skips) recipe.sampling.skip_layer_guidance = SkipLayerGuidance{{7, 8, 9}, 2.5, 0.01, 0.2};
  return recipe;
}

TEST(Guidance, IsTheRecipesWithWhatTheUserSaid) {
  Guidance g = guidance_of({}, recipe_with(false, false));
  EXPECT_TRUE(g.classifier_free);
  EXPECT_FALSE(g.batched);
  EXPECT_EQ(g.scale, 4.5);
  EXPECT_FALSE(g.skip_layers);
  g = guidance_of({.guidance_scale = 3, .batch_cfg = true}, recipe_with(true, false));
  EXPECT_FALSE(g.classifier_free);  // the model takes the number
  EXPECT_FALSE(g.batched);
  EXPECT_EQ(g.scale, 3);
  g = guidance_of({.guidance_scale = 1, .batch_cfg = true}, recipe_with(false, true));
  EXPECT_FALSE(g.classifier_free);
  EXPECT_FALSE(g.batched);
  EXPECT_FALSE(g.skip_layers);
  g = guidance_of({.batch_cfg = true}, recipe_with(false, true));
  EXPECT_TRUE(g.batched);
  ASSERT_TRUE(g.skip_layers);
  EXPECT_EQ(g.skip_layers->scale, 2.5);
  g = guidance_of({.skip_guidance_layers = {3},
                   .skip_layer_guidance_scale = 1.5,
                   .skip_layer_guidance_start = 0.1,
                   .skip_layer_guidance_stop = 0.5},
                  recipe_with(false, true));
  EXPECT_THAT(g.skip_layers->layers, ElementsAre(3));
  EXPECT_EQ(g.skip_layers->scale, 1.5);
  EXPECT_EQ(g.skip_layers->start, 0.1);
  EXPECT_EQ(g.skip_layers->end, 0.5);
  EXPECT_FALSE(guidance_of({.skip_layer_guidance_scale = 0}, recipe_with(false, true)).skip_layers);
  Recipe recipe = recipe_with(false, false);
  g = guidance_of({}, recipe);
  EXPECT_EQ(g.limit, 0);
  EXPECT_EQ(g.until, 1);
  recipe.sampling.renorm_cfg = 1.5;
  recipe.sampling.cfg_trunc_ratio = 0.25;
  g = guidance_of({.guidance_rescale = 0.7, .do_cfg_norm = true}, recipe);
  EXPECT_EQ(g.limit, 1.5);
  EXPECT_EQ(g.until, 0.25);
  EXPECT_EQ(g.rescale, 0.7);
  EXPECT_TRUE(g.by_patches);
  g = guidance_of({.renorm_cfg = 0, .cfg_trunc_ratio = 2}, recipe);
  EXPECT_EQ(g.limit, 0);
  EXPECT_EQ(g.until, 2);
}

// A negative prompt that nobody asks the model with is spoken of.
TEST(Guidance, NegativePromptWithoutASecondRunIsSaid) {
  const auto said = [](const SampleConfig& config, bool distilled) {
    const Recipe recipe = recipe_with(distilled, false);
    return unused_negative({{.prompt = "a", .negative = config.neg, .guidance = guidance_of(config, recipe)}}, recipe);
  };
  EXPECT_EQ(said({.neg = "blurry"}, false), "");
  EXPECT_EQ(said({.guidance_scale = 1}, false), "");
  EXPECT_THAT(said({.neg = "blurry", .guidance_scale = 1}, false), HasSubstr("guidance_scale is 1"));
  EXPECT_THAT(said({.neg = "blurry"}, true), HasSubstr("this model is given guidance as a number"));
}

TEST(Guidance, ThatTheModelDoesNotHaveIsRefused) {
  struct Row {
    SampleConfig config;
    bool skips;
    const char* text;
  };
  const Row rows[] = {
      {{.skip_layer_guidance_scale = 2},
       false,
       "sample.skip_layer_guidance_scale: model family 'tiny' has no skip-layer"},
      {{.skip_guidance_layers = {1}}, false, "sample.skip_guidance_layers: model family 'tiny' has no skip-layer"},
      {{.skip_layer_guidance_start = 0.5}, true, "sample.skip_layer_guidance_start: 0.5 is behind"},
      {{.guidance_scale = 1, .skip_layer_guidance_scale = 2}, true, "goes with classifier-free guidance"}};
  for (const Row& row : rows)
    EXPECT_THAT(error_of([&] { guidance_of(row.config, recipe_with(false, row.skips)); }), HasSubstr(row.text));
}

TEST(Guidance, SkipsLayersInItsShareOfTheSteps) {
  const auto steps_of = [](double start, double end, int64_t steps) {
    std::vector<int64_t> on;
    for (int64_t i = 0; i < steps; ++i)
      if (active({.layers = {1}, .scale = 1, .start = start, .end = end}, i, steps)) on.push_back(i);
    return on;
  };
  EXPECT_THAT(steps_of(0.01, 0.2, 28), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(steps_of(0.01, 0.2, 20), ElementsAre(1, 2, 3));  // the ends are out
  EXPECT_THAT(steps_of(0, 1, 3), ElementsAre(1, 2));
  EXPECT_THAT(steps_of(0.5, 0.5, 4), ElementsAre());
}

TEST(Guidance, Formulas) {
  const HostTensor c = floats({1, 2}, {1, -2}), u = floats({1, 2}, {0.5f, 1}), s = floats({1, 2}, {2, -2.5f});
  HostTensor out = classifier_free(c, u, 3);
  EXPECT_THAT(std::vector<float>(out.as<float>().begin(), out.as<float>().end()), ElementsAre(2.0f, -8.0f));
  add_skip_layer(out, c, s, 2);
  EXPECT_THAT(std::vector<float>(out.as<float>().begin(), out.as<float>().end()), ElementsAre(0.0f, -7.0f));
}

std::vector<float> values(const HostTensor& tensor) { return {tensor.as<float>().begin(), tensor.as<float>().end()}; }

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Two patches of 2 x 2 places with two channels side by side: rows hold parts of both.
TEST(Guidance, IsTakenBackPatchByPatch) {
  const HostTensor c = floats({1, 2, 4, 2}, {1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0});
  HostTensor out = floats({1, 2, 4, 2}, {3, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, -1});
  take_back_norm(out, c, {.by_patches = true}, 2);
  const auto root = static_cast<float>(5 / std::sqrt(2.0));  // of a norm of sqrt(2), 5 of c
  EXPECT_THAT(values(out), Pointwise(FloatEq(), std::vector<float>{0.6f, 0, 0, 0, 0, root, 0, 0,  //
                                                                   0, 0.8f, 0, 0, 0, 0, 0, -root}));
  HostTensor nothing = floats({1, 1, 1, 2}, {0, 0});
  take_back_norm(nothing, floats({1, 1, 1, 2}, {1, 1}), {.by_patches = true}, 1);
  EXPECT_THAT(values(nothing), ElementsAre(0, 0));
}

TEST(Guidance, IsLimited) {
  const HostTensor c = floats({1, 1, 2, 1}, {3, 4});
  for (const auto& [limit, norm] : {std::pair{0.0, 10.0}, {1.0, 5.0}, {1.5, 7.5}, {3.0, 10.0}}) {
    HostTensor out = floats({1, 1, 2, 1}, {-6, 8});
    take_back_norm(out, c, {.limit = limit}, 1);
    EXPECT_NEAR(norm_of(values(out)), norm, 1e-6) << limit;
    EXPECT_LT(values(out)[0], 0);
  }
}

// Deviations from the mean, 1 of c and 4 of the result.
TEST(Guidance, IsRescaled) {
  const HostTensor c = floats({1, 1, 2, 1}, {9, 11});
  for (const auto& [share, factor] : {std::pair{0.0, 1.0}, {0.5, 0.625}, {1.0, 0.25}}) {
    HostTensor out = floats({1, 1, 2, 1}, {-4, 4});
    take_back_norm(out, c, {.rescale = share}, 1);
    EXPECT_THAT(values(out),
                ElementsAre(FloatEq(static_cast<float>(-4 * factor)), FloatEq(static_cast<float>(4 * factor))));
    HostTensor even = floats({1, 1, 2, 1}, {2, 2});
    take_back_norm(even, c, {.rescale = share}, 1);
    EXPECT_THAT(values(even), ElementsAre(2, 2));
  }
}

TEST(Guidance, KnowsHowMuchNoiseIsGone) {
  Recipe recipe;
  recipe.objective = Objective::flow;
  EXPECT_EQ(noise_gone(recipe, 1, 1), 0);
  EXPECT_EQ(noise_gone(recipe, 0.25, 0.25), 0.75);
  recipe.objective = Objective::epsilon;
  EXPECT_EQ(noise_gone(recipe, 14.6, 999), 0);
  EXPECT_EQ(noise_gone(recipe, 1, 499), 0.5);
  EXPECT_LT(noise_gone(recipe, 0.03, 0), 1);
}

}  // namespace
}  // namespace lh::test::guidance_test
