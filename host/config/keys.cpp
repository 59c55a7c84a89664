// The table of keys. Order is the order of printing and of docs/config.md.
#include <algorithm>

#include "config/schema.h"
#include "config/value.h"
#include "core/bytes.h"
#include "core/lower.h"

namespace lh::schema {
namespace {

constexpr double largest = 1e15;  // integers stay exact in a double
constexpr Range positive{.low = 0, .above = true};
constexpr Range from_zero{.low = 0};
constexpr Range count{.low = 1, .high = 1e9};
constexpr Range any_count{.low = 0, .high = 1e9};
constexpr Range side{.low = 32, .high = 16384};
constexpr Range batch_size{.low = 1, .high = 4096};
constexpr Range frames{.low = 1, .high = 10'000};
constexpr Range frame_rate{.low = 0, .high = 1000, .above = true};
constexpr Range whole_seed{.low = 0, .high = largest};
constexpr Range guidance{.low = 0, .high = 100};
constexpr Range share{.low = 0, .high = 1};

constexpr Choice compute_types[] = {{"bf16", "bf16"},    {"fp16", "fp16"},    {"fp32", "fp32"}, {"bfloat16", "bf16"},
                                    {"float16", "fp16"}, {"float32", "fp32"}, {"float", "fp32"}};
constexpr Choice state_places[] = {{"auto", "auto"}, {"device", "device"}, {"host", "host"}};
constexpr Choice storage_types[] = {{"auto", "auto"},
                                    {"bf16", "bf16"},
                                    {"fp16", "fp16"},
                                    {"fp32", "fp32"},
                                    {"bfloat16", "bf16"},
                                    {"float16", "fp16"},
                                    {"float32", "fp32"},
                                    {"float", "fp32"},
                                    {"float8_e4m3", "float8_e4m3"},
                                    {"float8", "float8_e4m3"},
                                    {"fp8", "float8_e4m3"},
                                    {"int8", "int8"},
                                    {"nf4", "nf4"}};
constexpr Choice product_types[] = {
    {"full", "full"}, {"float8", "float8"}, {"float8_e4m3", "float8"}, {"fp8", "float8"}, {"int8", "int8"}};
constexpr Choice file_types[] = {{"float16", "float16"}, {"bfloat16", "bfloat16"}, {"float32", "float32"},
                                 {"fp16", "float16"},    {"bf16", "bfloat16"},     {"fp32", "float32"},
                                 {"float", "float32"}};
constexpr Choice reduce_types[] = {
    {"float32", "float32"}, {"bfloat16", "bfloat16"}, {"fp32", "float32"}, {"bf16", "bfloat16"}, {"float", "float32"}};
constexpr Choice schedules[] = {{"constant", "constant"},
                                {"constant_with_warmup", "constant_with_warmup"},
                                {"linear", "linear"},
                                {"cosine", "cosine"},
                                {"cosine_with_restarts", "cosine_with_restarts"},
                                {"polynomial", "polynomial"},
                                {"step", "step"},
                                {"rex", "rex"},
                                {"inverse_sqrt", "inverse_sqrt"}};
constexpr Choice timestep_types[] = {{"sigmoid", "sigmoid"},
                                     {"linear", "linear"},
                                     {"linear_shift", "linear_shift"},
                                     {"weighted", "weighted"},
                                     {"shift", "shift"},
                                     {"flux_shift", "flux_shift"},
                                     {"linear_flux_shift", "linear_flux_shift"},
                                     {"logit_normal", "logit_normal"},
                                     {"mode", "mode"},
                                     {"cosmap", "cosmap"},
                                     {"uniform", "linear"},
                                     {"lumina2_shift", "linear_shift"},
                                     {"one_step", "one_step"},
                                     {"two_step", "two_step"},
                                     {"four_step", "four_step"},
                                     {"eight_step", "eight_step"},
                                     {"lognorm_blend", "lognorm_blend"}};
constexpr Choice noise_schedulers[] = {{"flowmatch", "flowmatch"}, {"ddpm", "ddpm"}, {"ddim", "ddpm"}};
constexpr Choice caption_lines[] = {{"whole", "whole"}, {"first", "first"}, {"any", "any"}};
constexpr Choice range_fits[] = {{"cut", "cut"}, {"scale", "scale"}};
constexpr Choice extractions[] = {
    {"head", "head"}, {"chunk", "chunk"}, {"slide", "slide"}, {"uniform", "uniform"}, {"full", "full"}};
constexpr Choice shuffles[] = {{"false", "false"}, {"true", "true"}, {"all", "all"}, {"no", "false"}, {"yes", "true"}};
constexpr Choice mask_normalizations[] = {{"batch", "batch"}, {"none", "none"}};
constexpr Choice favoured_levels[] = {{"balanced", "balanced"}, {"content", "content"}, {"style", "style"}};
constexpr Choice huber_schedules[] = {{"snr", "snr"}, {"exponential", "exponential"}, {"constant", "constant"}};
constexpr Choice missing_captions[] = {{"error", "error"}, {"empty", "empty"}};
constexpr Choice weighting_schemes[] = {{"none", "none"},
                                        {"sigma_sqrt", "sigma_sqrt"},
                                        {"logit_normal", "logit_normal"},
                                        {"mode", "mode"},
                                        {"bell", "bell"},
                                        {"half_bell", "half_bell"},
                                        {"cosmap", "cosmap"},
                                        {"uniform", "none"}};
constexpr Choice checkpointing[] = {{"auto", "auto"}, {"true", "true"}, {"false", "false"}, {"yes", "true"},
                                    {"no", "false"},  {"on", "true"},   {"off", "false"}};
constexpr Choice ema_warmups[] = {
    {"none", "none"}, {"num_updates", "num_updates"}, {"diffusers", "diffusers"}, {"power", "power"}};
constexpr Choice losses[] = {
    {"mse", "mse"}, {"l1", "l1"}, {"huber", "huber"}, {"smooth_l1", "smooth_l1"}, {"pseudo_huber", "pseudo_huber"},
    {"l2", "mse"},  {"mae", "l1"}};
constexpr Choice formats[] = {
    {"kohya", "kohya"}, {"diffusers", "diffusers"}, {"comfyui", "comfyui"}, {"safetensors", "kohya"}};
constexpr std::string_view role_names[] = {"down", "up", "weight"};
constexpr std::string_view schedule_params[] = {"warmup_steps", "warmup_ratio", "decay_steps", "decay_ratio",
                                                "num_cycles",   "power",        "lr_end",      "step_size",
                                                "gamma",        "rex_d",        "timescale"};

std::string check_device(std::string& device) {
  if (device == "cuda:0") device = "cuda";
  if (device == "cpu" || device == "cuda") return "";
  const std::string number = device.starts_with("cuda:") ? device.substr(5) : "";
  if (!number.empty() && number.size() <= 3 && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; }))
    return "";
  return "must be cpu, cuda or cuda:N";
}

std::string check_extension(std::string& extension) {
  if (extension.starts_with('.')) extension.erase(0, 1);
  if (extension.empty() || extension.find('/') != std::string::npos) return "must be a file extension such as txt";
  return "";
}

std::string check_separator(std::string& separator) { return separator.empty() ? "must be text such as a comma" : ""; }

// The run's name becomes a folder and the first part of file names.
std::string check_name(std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return "must be a file name without slashes";
  if (has_control(name) || name.front() == ' ' || name.back() == ' ')
    return "must be a file name without control characters, and without spaces around it";
  return "";
}

// As peers write it; ai-toolkit calls the training of whole weights fullrank.
std::string check_adapter(std::string& type) {
  type = lower(type);
  if (type == "fullrank" || type == "diff") type = "full";
  return type.empty() ? "must be the id of an adapter, such as lora" : "";
}

// ai-toolkit names a scheduler family here; the model's own sampler belongs to that family.
std::string check_sampler(std::string& sampler) {
  if (sampler == "flowmatch" || sampler == "ddpm") sampler.clear();
  return "";
}

std::string check_budget(std::string& budget) {
  if (budget.empty() || size_of(budget)) return "";
  return "must be a size such as 12GiB or 800 MiB; a number alone counts GiB";
}

// "auto", "0" or "35%"; true is all of it.
std::string check_share(std::string& share_of) {
  if (share_of == "true") share_of = "100%";
  if (share_of == "false" || share_of == "0%" || share_of == "none") share_of = "0";
  const std::string_view number(share_of.data(), share_of.size() - (share_of.ends_with('%') ? 1 : 0));
  const bool digits =
      !number.empty() && number.size() <= 3 && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  const bool share = number.size() < share_of.size() && digits && std::stoi(std::string(number)) <= 100;
  if (share_of == "auto" || share_of == "0" || share) return "";
  return "must be auto, 0, or a share such as 35%";
}

// "auto", "12" or "50%".
std::string check_stream(std::string& stream) {
  for (const char* const word : {" blocks", "blocks", " block"})
    if (stream.ends_with(word)) stream.resize(stream.size() - std::string_view(word).size());
  if (stream == "none") stream = "0";
  const std::string_view number(stream.data(), stream.size() - (stream.ends_with('%') ? 1 : 0));
  const bool digits =
      !number.empty() && number.size() <= 6 && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  const bool share = number.size() < stream.size();
  if (stream == "auto" || (digits && (!share || std::stoi(std::string(number)) <= 100))) return "";
  return "must be auto, a number of blocks such as 12, or a share of them such as 50%";
}

template <auto Member>
Field top(Config& config, DatasetConfig&) {
  return &(config.*Member);
}
template <auto Section, auto Member>
Field in(Config& config, DatasetConfig&) {
  return &((config.*Section).*Member);
}
template <auto Member>
Field each(Config&, DatasetConfig& dataset) {
  return &(dataset.*Member);
}

template <auto Member>
Field ema(Config& config, DatasetConfig&) {
  return &(config.train.ema_config.*Member);
}

constexpr auto Y = &Config::memory;
constexpr auto M = &Config::model;
constexpr auto N = &Config::network;
constexpr auto T = &Config::train;
constexpr auto L = &Config::slider;
constexpr auto S = &Config::sample;
constexpr auto V = &Config::save;
using D = DatasetConfig;
using E = EmaConfig;
using Tr = TrainSection;

const Key table[] = {
    {"name",
     top<&Config::name>,
     "Name of the run: its folder and the first part of its file names.",
     {.normalize = check_name}},
    {"training_folder", top<&Config::training_folder>, "Everything is written to training_folder/name."},
    {"trigger_word", top<&Config::trigger_word>,
     "Replaces [trigger] in captions and prompts; put in front of captions that do not have it."},
    {"device", top<&Config::device>, "cuda, cuda:N or cpu.", {.normalize = check_device}},
    {"plugin", top<&Config::plugin>, "Model plugin, by id or path. Empty: found by looking at the weights."},
    {"memory_limit_mib",
     top<&Config::memory_limit_mib>,
     "Another way to say memory.budget, in MiB. 0: not said.",
     {.range = any_count}},

    {"memory.budget",
     in<Y, &MemoryConfig::budget>,
     "Device memory the run may take: 12GiB, 800 MiB, or a number of GiB. It never takes more, whatever the device "
     "has, and is refused where it would have to (docs/memory.md). Empty: what is free.",
     {.normalize = check_budget}},
    {"memory.stream",
     in<Y, &MemoryConfig::stream>,
     "Blocks whose weights stay in host memory and travel to the device ahead of use. auto: as many as memory makes "
     "necessary. A number of blocks, or a share such as 50%: so many at least. 0: none.",
     {.normalize = check_stream}},
    {"memory.recompute",
     in<Y, &MemoryConfig::recompute>,
     "How much of what blocks leave in memory for their backward passes is dropped and made again there, tensor by "
     "tensor, what costs least time for each byte first. auto: as much as memory makes necessary. A share of the bytes "
     "that may be freed, such as 35%: so much at least. 0: nothing.",
     {.normalize = check_share}},
    {"memory.offload",
     in<Y, &MemoryConfig::offload>,
     "How much of what blocks leave in memory for their backward passes waits in host memory meanwhile, and comes back "
     "two blocks ahead of use. auto: as much as memory makes necessary, where that is faster than to make it again. A "
     "share of the bytes that may, such as 35%: so much at least, as far as they are kept. 0: nothing.",
     {.normalize = check_share}},
    {"memory.optimizer_states",
     in<Y, &MemoryConfig::optimizer_states>,
     "Where the optimizer's states are between two updates. host: in host memory; an update brings them to the device "
     "piece by piece and takes them back, which changes no bit of it. device: on the device. auto: there too, unless "
     "memory is short and host memory is predicted to cost least.",
     {.choices = state_places}},
    {"memory.host",
     in<Y, &MemoryConfig::host>,
     "Host memory that weights, activations and optimizer states may take, which stays in memory while the run lasts: "
     "32GiB, 800 MiB, or a "
     "number of GiB. Empty: nine tenths of what is free, shared by the processes of a machine.",
     {.normalize = check_budget}},
    {"memory.shard_base", in<Y, &MemoryConfig::shard_base>,
     "Where several processes train together, each keeps a part of the blocks' frozen weights on its device; a block's "
     "come together two blocks ahead of use (docs/scale.md). One process keeps all."},

    {"model.name_or_path",
     in<M, &ModelConfig::name_or_path>,
     "Checkpoint file or diffusers directory.",
     {.required = true}},
    {"model.dtype",
     in<M, &ModelConfig::dtype>,
     "Type in which the weights of the denoiser's linear layers are kept. auto: fp8 where the file has fp8, else "
     "train.dtype. float8_e4m3, int8: 8 bits as well in the layers that LoRA goes on, rounded when they are loaded, "
     "with one factor for each row: half the memory of bf16. nf4: 4 bits there, with one factor for each 64 "
     "neighbours, as QLoRA has them: little more than a quarter (docs/quantisation.md). The others: converted when "
     "they are loaded.",
     {.choices = storage_types}},
    {"model.text_encoder_dtype",
     in<M, &ModelConfig::text_encoder_dtype>,
     "The same for the text encoders, in all of their linear layers. auto: fp8 where the file has fp8, else the type "
     "that they run in, bf16, or fp32 where train.dtype is. nf4 brings T5-XXL from 8.9 to 2.5 GiB.",
     {.choices = storage_types}},
    {"model.max_token_length",
     in<M, &ModelConfig::max_token_length>,
     "Tokens of a prompt for models whose encoders read long text in rows, one after another, as CLIP's do: 75, 150 or "
     "225. Empty or 0: one row. Samples are made as the run is trained.",
     {.range = any_count}},
    {"model.products",
     in<M, &ModelConfig::products>,
     "Numbers in which the layers that LoRA goes on multiply with their weights. full: those of train.dtype. float8, "
     "with weights in fp8 (dtype: float8_e4m3), and int8, with weights in int8: weights are multiplied as they are, "
     "with activations and their gradients rounded to 8 bits by rows. About half the time or less on GPUs that can, "
     "float8 from Ada and Hopper on, int8 from Turing on; float8 is the more exact "
     "(docs/quantisation.md#products-in-8-bits).",
     {.choices = product_types}},
    {"model.max_sequence_length",
     in<M, &ModelConfig::max_sequence_length>,
     "Tokens of a prompt for a text encoder that takes any number. 0: the model's own.",
     {.range = {.low = 0, .high = 4096}}},
    {"model.vae_tile",
     in<M, &ModelConfig::vae_tile>,
     "Larger images are encoded and decoded in overlapping tiles of about this many pixels a side, at least 64. 0: "
     "whole, or in tiles as large as memory allows.",
     {.range = {.low = 0, .high = 16384}}},
    {"model.lora_path",
     in<M, &ModelConfig::lora_path>,
     "LoRA files that are part of the model, for training and samples: FILE, or FILE:STRENGTH; one or a list.",
     {.normalize = [](std::string& path) { return schema::problem_of_path(path); }}},
    {"model.assistant_lora_path", in<M, &ModelConfig::assistant_lora_path>,
     "LoRA file that is part of the model while training and not in samples, such as one that undoes a model's "
     "distillation."},
    {"model.inference_lora_path", in<M, &ModelConfig::inference_lora_path>,
     "LoRA file that is part of the model in samples and not while training."},

    {"network.type",
     in<N, &NetworkConfig::type>,
     "Adapter, by the id its plugin gives it: lora, locon (the same), dora, loha, lokr or full (docs/lora-files.md).",
     {.normalize = check_adapter}},
    {"network.network_kwargs", in<N, &NetworkConfig::network_kwargs>,
     "Options of the adapter, such as factor: 8 of lokr; lora-host plugins --verbose lists them."},
    {"network.linear", in<N, &NetworkConfig::linear>, "Rank.", {.range = {.low = 1, .high = 4096}}},
    {"network.linear_alpha",
     in<N, &NetworkConfig::linear_alpha>,
     "Alpha: the adapter is scaled by alpha / rank. Empty: the rank.",
     {.range = positive}},
    {"network.conv",
     in<N, &NetworkConfig::conv>,
     "Rank on convolutions of models that have them (LoCon): on every convolution of the blocks but those in "
     "groups (--dry-run names them), 1x1 ones and the linear layers between them with network.linear. 0: those blocks "
     "are left alone.",
     {.range = {.low = 0, .high = 4096}}},
    {"network.conv_alpha",
     in<N, &NetworkConfig::conv_alpha>,
     "Alpha of the adapters on convolutions. Empty: their rank.",
     {.range = positive}},
    {"network.dropout",
     in<N, &NetworkConfig::dropout>,
     "Chance that one of the rank values between the adapter's two matrices is dropped.",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"network.rank_dropout",
     in<N, &NetworkConfig::rank_dropout>,
     "Chance that a whole rank is dropped from a sample (lora, locon), or a row of the weight's change (the others).",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"network.module_dropout",
     in<N, &NetworkConfig::module_dropout>,
     "Chance that a module's adapter is left out of a step.",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"network.scale_weight_norms",
     in<N, &NetworkConfig::scale_weight_norms>,
     "Largest norm of a module's change, of lora and locon: after each step a larger one is scaled down to it. Empty: "
     "none.",
     {.range = positive}},
    {"network.module_ranks",
     in<N, &NetworkConfig::module_ranks>,
     "Ranks of modules whose whole name is like a pattern, a regular expression; of several patterns the longest "
     "counts: {\"double_blocks\\..*\": 32}. Their alpha is their rank, unless module_alphas says otherwise.",
     {.range = {.low = 1, .high = 4096}}},
    {"network.module_alphas",
     in<N, &NetworkConfig::module_alphas>,
     "Alphas of modules, likewise.",
     {.range = positive}},
    {"network.target_modules", in<N, &NetworkConfig::target_modules>,
     "Adapt the layers of the denoiser whose whole name is like one of these regular expressions. Empty: the model's "
     "own choice."},
    {"network.pretrained_lora_path", in<N, &NetworkConfig::pretrained_lora_path>,
     "LoRA file to start from, of any tool: its modules are what the first step changes."},
    {"network.only_if_contains", in<N, &NetworkConfig::only_if_contains>,
     "Adapt only modules whose name contains one of these."},
    {"network.ignore_if_contains", in<N, &NetworkConfig::ignore_if_contains>,
     "Leave out modules whose name contains one of these."},

    {"datasets[].folder_path",
     each<&D::folder_path>,
     "Folder of images, each with its caption beside it.",
     {.required = true}},
    {"datasets[].trigger_word", each<&D::trigger_word>, "As trigger_word, for this dataset. Empty: the run's."},
    {"datasets[].images", each<&D::images>,
     "Further images of each sample, for models that are given some: by the model's key, such as control, a folder "
     "with an image of the same name for each image of folder_path."},
    {"datasets[].caption_ext",
     each<&D::caption_ext>,
     "Extension of caption files. json: files with caption, one text or a list of which one is drawn, and tags.",
     {.normalize = check_extension}},
    {"datasets[].metadata_file", each<&D::metadata_file>,
     "File with the captions of all images, whose list of images it is: JSON by path ({\"a.png\": {\"caption\": "
     "\"...\", \"tags\": \"...\"}}), or JSONL with image_path, video_path or file_name in each line. Paths are those "
     "in folder_path, or whole."},
    {"datasets[].caption_lines",
     each<&D::caption_lines>,
     "What of a caption file with several lines is the caption: whole, its first line, or any line, drawn for each "
     "use.",
     {.choices = caption_lines}},
    {"datasets[].enable_wildcard", each<&D::enable_wildcard>,
     "{a|b} in a caption is one of the two, drawn for each use; {{ and }} are braces."},
    {"datasets[].shuffle_tokens",
     each<&D::shuffle_tokens>,
     "true: a caption's tags, the parts between commas, are in a new order at each use, but for those that are kept in "
     "front. all: no tag is kept in front, the trigger word neither, as ai-toolkit does.",
     {.choices = shuffles}},
    {"datasets[].keep_tokens",
     each<&D::keep_tokens>,
     "So many tags in front are neither moved nor dropped.",
     {.range = any_count}},
    {"datasets[].keep_tokens_separator", each<&D::keep_tokens_separator>,
     "Text such as ||| in a caption: tags before the first one, and behind a second one, are neither moved nor "
     "dropped; keep_tokens is for captions without it."},
    {"datasets[].caption_separator",
     each<&D::caption_separator>,
     "What stands between tags.",
     {.normalize = check_separator}},
    {"datasets[].secondary_separator", each<&D::secondary_separator>,
     "Text such as ;;; within a tag that becomes caption_separator in the end: such tags stay together."},
    {"datasets[].token_dropout_rate",
     each<&D::token_dropout_rate>,
     "Chance that a tag that is not kept is left out.",
     {.range = share}},
    {"datasets[].token_warmup_min",
     each<&D::token_warmup_min>,
     "Tags that are not kept that a caption has at the start of token_warmup_step.",
     {.range = any_count}},
    {"datasets[].token_warmup_step",
     each<&D::token_warmup_step>,
     "Steps over which the number of tags grows to all of them; below 1 a share of the run. 0: all from the start.",
     {.range = from_zero}},
    {"datasets[].caption_variants",
     each<&D::caption_variants>,
     "Where captions are drawn: so many for each image, which take turns by chance. Each is encoded once. 0: drawn "
     "anew at each use.",
     {.range = any_count}},
    {"datasets[].caption_prefix", each<&D::caption_prefix>, "Put in front of every caption, with a space."},
    {"datasets[].caption_suffix", each<&D::caption_suffix>, "Put behind every caption, with a space."},
    {"datasets[].default_caption", each<&D::default_caption>, "Caption of images without a file."},
    {"datasets[].replacements", each<&D::replacements>,
     "Texts that are replaced in every caption: [\"a cat|sks cat\"], in this order, before anything else is done."},
    {"datasets[].random_triggers", each<&D::random_triggers>,
     "Words, or a file with one in each line, of which random_triggers_max are put behind each caption, "
     "other ones at each use."},
    {"datasets[].random_triggers_max",
     each<&D::random_triggers_max>,
     "Of random_triggers: 1, or from 0 to so many.",
     {.range = {.low = 1, .high = 1e6}}},
    {"datasets[].missing_captions",
     each<&D::missing_captions>,
     "An image without caption file and default_caption: error, or empty: its caption is the trigger word, if there is "
     "one.",
     {.choices = missing_captions}},
    {"datasets[].resolution",
     each<&D::resolution>,
     "Training size: images are scaled to about resolution x resolution pixels. A list trains at each size.",
     {.range = side, .nonempty = true}},
    {"datasets[].batch_size",
     each<&D::batch_size>,
     "Images in a batch of this dataset, or a list with a number for each resolution. Empty: train.batch_size.",
     {.range = batch_size}},
    {"datasets[].caption_dropout_rate",
     each<&D::caption_dropout_rate>,
     "Chance that a caption is left empty.",
     {.range = {.low = 0, .high = 1}}},
    {"datasets[].caption_dropout_every_n_epochs",
     each<&D::caption_dropout_every_n_epochs>,
     "Every so many epochs all captions are left empty. 0: never.",
     {.range = any_count}},
    {"datasets[].num_repeats",
     each<&D::num_repeats>,
     "How often each image is used in an epoch.",
     {.range = {.low = 1, .high = 1e6}}},
    {"datasets[].recursive", each<&D::recursive>, "Images in folders within folder_path too, but for hidden ones."},
    {"datasets[].class_folders", each<&D::class_folders>,
     "The folders within folder_path are datasets: 10_sks dog has images that are repeated 10 times, with the "
     "caption sks dog where they have none."},
    {"datasets[].is_reg", each<&D::is_reg>,
     "Regularization images, which show what is to stay as it is. As many are used as others, their captions do not "
     "get the trigger word, and their loss is weighed by train.reg_weight."},
    {"datasets[].loss_multiplier",
     each<&D::loss_multiplier>,
     "What the loss of these images is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},
    {"datasets[].mask_path", each<&D::mask_path>,
     "Folder with masks, each of the name and shape of its image: where it is white the image counts in the loss, "
     "where it is black it does not. An image without one counts everywhere."},
    {"datasets[].alpha_mask", each<&D::alpha_mask>, "Images count where they are opaque."},
    {"datasets[].invert_mask", each<&D::invert_mask>, "Images count where their mask is black, or transparent."},
    {"datasets[].mask_min_value",
     each<&D::mask_min_value>,
     "How much black counts: masks go from this to 1.",
     {.range = share}},
    {"datasets[].num_frames",
     each<&D::num_frames>,
     "For models of videos: the folder's videos are trained on in place of its images, so many frames of each. Where "
     "the model's latents have a place for the first frame and one for each N behind it, the last ones that fill none "
     "are left out.",
     {.range = frames}},
    {"datasets[].do_i2v", each<&D::do_i2v>,
     "For models that make videos of text, and go on from a picture where they are given one: each clip goes on from "
     "its own first frame, of which nothing is learnt. Models of image-to-video alone are always shown it."},
    {"datasets[].do_audio", each<&D::do_audio>,
     "For models that make sound beside videos (model.sound, which this sets): clips are trained with the sound of "
     "their "
     "videos, played faster or slower where the clip is. Clips of videos without a sound track are trained without."},
    {"datasets[].audio_normalize", each<&D::audio_normalize>,
     "The loudest place of a video's sound track is made as loud as can be."},
    {"datasets[].shrink_video_to_frames", each<&D::shrink_video_to_frames>,
     "The frames are spread evenly over the whole video. false: they follow each other at datasets[].fps, from a place "
     "of the video that its content decides."},
    {"datasets[].fps",
     each<&D::fps>,
     "Frames a second, with shrink_video_to_frames: false or source_fps.",
     {.range = frame_rate}},
    {"datasets[].frame_extraction",
     each<&D::frame_extraction>,
     "In place of shrink_video_to_frames, clips of frames that follow each other, as musubi-tuner has them: head (the "
     "first num_frames, which may be 1), chunk (the whole video, cut into clips), slide (a clip from every "
     "frame_stride-th frame on), uniform (frame_sample clips, evenly spaced), full (all frames, num_frames at most). "
     "Empty: not.",
     {.choices = extractions}},
    {"datasets[].frame_stride",
     each<&D::frame_stride>,
     "Frames from the beginning of a clip to that of the next, of frame_extraction: slide.",
     {.range = {.low = 1, .high = 1e5}}},
    {"datasets[].frame_sample",
     each<&D::frame_sample>,
     "Clips of each video, of frame_extraction: uniform.",
     {.range = {.low = 1, .high = 1e5}}},
    {"datasets[].source_fps",
     each<&D::source_fps>,
     "With frame_extraction: videos are taken to have so many frames a second, of which datasets[].fps are kept. 0: "
     "all are.",
     {.range = {.low = 0, .high = 1000}}},
    {"datasets[].flip_x", each<&D::flip_x>, "Use each image mirrored as well."},
    {"datasets[].flip_y", each<&D::flip_y>,
     "Use each image upside down as well, top and bottom mirrored; with flip_x in all four ways."},
    {"datasets[].random_crop", each<&D::random_crop>,
     "Crop images anywhere instead of in the centre, where the bucket leaves room."},
    {"datasets[].random_scale", each<&D::random_scale>,
     "Scale images to any size from the least that covers the bucket to their own, so that crops show parts of them."},
    {"datasets[].color_aug", each<&D::color_aug>,
     "Move the colours of one image in three a little: its hue, or its gamma."},
    {"datasets[].augment_variants",
     each<&D::augment_variants>,
     "With random_crop, random_scale or color_aug: so many variants of each image are encoded, of which each use has "
     "one.",
     {.range = {.low = 1, .high = 1e6}}},
    {"datasets[].inpaint_masks",
     each<&D::inpaint_masks>,
     "For models that paint by a mask, without images.mask: so many masks are drawn for each image, of which each use "
     "has one.",
     {.range = {.low = 1, .high = 1e6}}},
    {"datasets[].cache_latents_to_disk", each<&D::cache_latents_to_disk>,
     "Keep encoded images on disk, so that the next run starts at once."},
    {"datasets[].buckets", each<&D::buckets>, "Group images by shape. false: crop all to a square."},
    {"datasets[].strict", each<&D::strict>, "Stop at a damaged image instead of leaving it out."},

    {"train.batch_size",
     in<T, &Tr::batch_size>,
     "Images in a batch, of datasets without a batch_size of their own.",
     {.range = batch_size}},
    {"train.steps", in<T, &Tr::steps>, "Optimizer steps.", {.range = count}},
    {"train.max_train_epochs",
     in<T, &Tr::max_train_epochs>,
     "Epochs, in place of steps: as many steps as go through all images so often. 0: steps.",
     {.range = any_count}},
    {"train.gradient_accumulation",
     in<T, &Tr::gradient_accumulation>,
     "Batches added up for one step.",
     {.range = {.low = 1, .high = 1e6}}},
    {"train.lr",
     in<T, &Tr::lr>,
     "Learning rate. Empty: 1e-4, or what the optimizer's plugin says is usual, such as 1 of prodigy.",
     {.range = {.low = 0, .high = 100, .above = true}}},
    {"train.train_text_encoder", in<T, &Tr::train_text_encoder>,
     "Put adapters on the text encoders too. They stay in memory and run in every step."},
    {"train.text_encoder_lr",
     in<T, &Tr::text_encoder_lr>,
     "Learning rate of the text encoders' adapters: one, or a list with one for each, in the order of their names. "
     "Empty: train.lr.",
     {.range = {.low = 0, .high = 100, .above = true}}},
    {"train.loraplus_lr_ratio",
     in<T, &Tr::loraplus_lr_ratio>,
     "LoRA+: the learning rate of lora_up is this times that of lora_down; 16 is common.",
     {.range = {.low = 0, .high = 1e4, .above = true}}},
    {"train.module_lr_ratio",
     in<T, &Tr::module_lr_ratio>,
     "Learning rates by module: what the rate of modules is multiplied by whose whole name is like a pattern, a "
     "regular expression; of several patterns the longest counts: {\"single_blocks\\..*\": 0.5}.",
     {.range = {.low = 0, .high = 1e4, .above = true}}},
    {"train.role_weight_decay",
     in<T, &Tr::role_weight_decay>,
     "The optimizer's weight_decay for tensors of one role: {down: 0.01, up: 0}.",
     {.range = from_zero, .names = role_names}},
    {"train.lr_scheduler",
     in<T, &Tr::lr_scheduler>,
     "How the learning rate moves over the run.",
     {.choices = schedules}},
    {"train.lr_scheduler_params",
     in<T, &Tr::lr_scheduler_params>,
     "warmup_steps or warmup_ratio (0), decay_steps or decay_ratio (0: of a fall to 0 at the end), num_cycles (0.5 for "
     "cosine, 1 for cosine_with_restarts), power (1), lr_end (1e-7), step_size (a third of the steps), gamma (0.1), "
     "rex_d (0.5), timescale (the warm-up, else 10000). Ratios are of the run's steps, at most 1. One that the "
     "schedule does not use is refused; a warm-up and a decay that are longer than the run are warned of.",
     {.range = from_zero, .names = schedule_params}},
    {"train.optimizer", in<T, &Tr::optimizer>, "Optimizer, by the id its plugin gives it."},
    {"train.optimizer_params", in<T, &Tr::optimizer_params>,
     "Options of the optimizer, such as weight_decay: 0.01 or betas: [0.9, 0.999]; lora-host plugins --verbose lists "
     "them (docs/optimizers.md)."},
    {"train.phases", in<T, &Tr::phases>,
     "Parts of the run with settings of their own, in order: [{until: 500, optimizer: prodigy, lr: 1}, {optimizer: "
     "adamw8bit, lr: 1e-4}]. until: steps done when it ends; the last one ends with the run. Each may have lr, "
     "text_encoder_lr, loraplus_lr_ratio, module_lr_ratio, role_weight_decay, lr_scheduler, lr_scheduler_params, "
     "optimizer and optimizer_params; the rest is as above (docs/phases.md)."},
    {"train.ema_config.use_ema", ema<&E::use_ema>,
     "Keep an exponential moving average of the trained weights: it is what is saved and what samples are made with "
     "(docs/optimizers.md)."},
    {"train.ema_config.ema_decay",
     ema<&E::ema_decay>,
     "Share of the average that stays at each step.",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"train.ema_config.warmup",
     ema<&E::warmup>,
     "Decay of the first steps: none (ema_decay from the start, as ai-toolkit), num_updates (rises with the number of "
     "steps n as (1 + n) / (10 + n)), diffusers (the same after a first step that copies the weights), power (1 - (1 + "
     "(n - 1) / inv_gamma)^-power).",
     {.choices = ema_warmups}},
    {"train.ema_config.min_decay",
     ema<&E::min_decay>,
     "Least decay of a warm-up. Empty: 0.",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"train.ema_config.update_after_step",
     ema<&E::update_after_step>,
     "So many steps the average is a copy of the weights; n counts from there.",
     {.range = any_count}},
    {"train.ema_config.inv_gamma", ema<&E::inv_gamma>, "Of warmup power. Empty: 1.", {.range = positive}},
    {"train.ema_config.power", ema<&E::power>, "Of warmup power. Empty: 2/3.", {.range = positive}},
    {"train.max_grad_norm",
     in<T, &Tr::max_grad_norm>,
     "Gradients are scaled down to this norm. 0: never.",
     {.range = from_zero}},
    {"train.noise_scheduler",
     in<T, &Tr::noise_scheduler>,
     "What the model has to be trained with: flowmatch, or ddpm for discrete timesteps. Another model is refused. "
     "Empty: what the model is trained with.",
     {.choices = noise_schedulers}},
    {"train.timestep_type",
     in<T, &Tr::timestep_type>,
     "How noise levels are drawn: sigmoid (of a normal number), linear (evenly), linear_shift (evenly, shifted as "
     "those of sampling are), weighted (evenly, with ai-toolkit's weights of the loss), shift (sigmoid, shifted), "
     "flux_shift (sigmoid, shifted by the image's size), linear_flux_shift (evenly, shifted so), logit_normal, mode, "
     "cosmap, one_step to eight_step (one of so few levels), lognorm_blend (three of four from a lognormal law, mostly "
     "noisy, the others evenly). Empty: the model's own way.",
     {.choices = timestep_types}},
    {"train.timestep_shift",
     in<T, &Tr::timestep_shift>,
     "Moves noise levels up (above 1) or down. Empty: the model's own.",
     {.range = {.low = 0, .high = 100, .above = true}}},
    {"train.sigmoid_scale",
     in<T, &Tr::sigmoid_scale>,
     "Spread of timestep_type sigmoid. Empty: 1.",
     {.range = {.low = 0, .high = 100, .above = true}}},
    {"train.logit_mean",
     in<T, &Tr::logit_mean>,
     "Mean of timestep_type logit_normal: above 0 is noisier. Empty: 0.",
     {.range = {.low = -20, .high = 20}}},
    {"train.logit_std",
     in<T, &Tr::logit_std>,
     "Spread of timestep_type logit_normal. Empty: 1.",
     {.range = {.low = 0, .high = 20, .above = true}}},
    {"train.mode_scale",
     in<T, &Tr::mode_scale>,
     "Of timestep_type mode: above 0 favours the middle, below 0 the ends. Empty: 1.29.",
     {.range = {.low = -1, .high = 1.75}}},
    {"train.min_denoising_steps",
     in<T, &Tr::min_denoising_steps>,
     "Of 1000 noise levels of timestep_type, counted from pure noise, the first that is trained.",
     {.range = {.low = 0, .high = 999}}},
    {"train.max_denoising_steps",
     in<T, &Tr::max_denoising_steps>,
     "The last one that is trained.",
     {.range = {.low = 0, .high = 999}}},
    {"train.noise_range",
     in<T, &Tr::noise_range>,
     "The least and the largest noise level that is trained, after all shifts; 1 is pure noise: [0.875, 1]. Empty: "
     "all.",
     {.range = share}},
    {"train.noise_range_fit",
     in<T, &Tr::noise_range_fit>,
     "How noise_range is kept to: cut (levels outside of it are drawn again), or scale (all levels of timestep_type "
     "are moved into it, so that 0 becomes its beginning and 1 its end).",
     {.choices = range_fits}},
    {"train.weighting_scheme",
     in<T, &Tr::weighting_scheme>,
     "Weight of a sample's loss by its noise, for flow models: none, sigma_sqrt, cosmap, bell (highest at "
     "half noise) or half_bell (not falling towards less noise). logit_normal and mode are "
     "taken as timestep_type. Empty: the model's own.",
     {.choices = weighting_schemes}},
    {"train.min_snr_gamma",
     in<T, &Tr::min_snr_gamma>,
     "For models of discrete timesteps: losses are weighted by min(SNR, gamma) / SNR; 5 is common. Empty or 0: not.",
     {.range = {.low = 0, .high = 1e6}}},
    {"train.debiased_estimation_loss", in<T, &Tr::debiased_estimation_loss>,
     "For models of discrete timesteps: losses are weighted by 1 / sqrt(SNR)."},
    {"train.noise_offset",
     in<T, &Tr::noise_offset>,
     "Shifts each channel of the noise by this times a normal number, so that dark and bright images are learned.",
     {.range = {.low = 0, .high = 10}}},
    {"train.multires_noise_iterations",
     in<T, &Tr::multires_noise_iterations>,
     "Adds noise of so many coarser and coarser grids at most, so that large shapes are learned. 0: none.",
     {.range = {.low = 0, .high = 100}}},
    {"train.multires_noise_discount",
     in<T, &Tr::multires_noise_discount>,
     "How strong each grid is, of the one before.",
     {.range = share}},
    {"train.ip_noise_gamma",
     in<T, &Tr::ip_noise_gamma>,
     "Input perturbation: latents are mixed with noise that is off by this times a normal number. 0.1 is common.",
     {.range = {.low = 0, .high = 10}}},
    {"train.ip_noise_gamma_random_strength", in<T, &Tr::ip_noise_gamma_random_strength>,
     "ip_noise_gamma is the most; for each sample it is evenly drawn below."},
    {"train.content_or_style",
     in<T, &Tr::content_or_style>,
     "Which noise levels are trained more often: content the noisy ones, style the others, by a cubic law; balanced as "
     "timestep_type has them.",
     {.choices = favoured_levels}},
    {"train.content_or_style_reg",
     in<T, &Tr::content_or_style_reg>,
     "The same for regularization images.",
     {.choices = favoured_levels}},
    {"train.reg_weight",
     in<T, &Tr::reg_weight>,
     "What the loss of datasets with is_reg is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},
    {"train.mask_normalization",
     in<T, &Tr::mask_normalization>,
     "batch: masks are scaled so that they are 1 on average over a batch, as ai-toolkit does; none: as they are, as "
     "kohya's scripts have it, so that small masks learn less.",
     {.choices = mask_normalizations}},
    {"train.inverted_mask_prior", in<T, &Tr::inverted_mask_prior>,
     "Where masks hide an image, the model stays as it was: a second loss is the mean square (with loss: l1 the "
     "absolute value) between what it says with the adapters and without them, weighted by the inverted mask. A step "
     "takes about a third longer."},
    {"train.inverted_mask_prior_multiplier",
     in<T, &Tr::inverted_mask_prior_multiplier>,
     "With inverted_mask_prior: what the second loss is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},
    {"train.diff_output_preservation", in<T, &Tr::diff_output_preservation>,
     "Keep what the class was: for each caption with diff_output_preservation_class in the place of the trigger word, "
     "a second loss is the mean square between what the model says with the adapters and without them. A step takes "
     "about two and a half times as long."},
    {"train.diff_output_preservation_class", in<T, &Tr::diff_output_preservation_class>,
     "With diff_output_preservation: the word in the place of the trigger word, such as person or dog."},
    {"train.diff_output_preservation_multiplier",
     in<T, &Tr::diff_output_preservation_multiplier>,
     "With diff_output_preservation: what the second loss is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},
    {"train.blank_prompt_preservation", in<T, &Tr::blank_prompt_preservation>,
     "Keep what the model says without a prompt: the second loss is for the empty caption."},
    {"train.blank_prompt_preservation_multiplier",
     in<T, &Tr::blank_prompt_preservation_multiplier>,
     "With blank_prompt_preservation: what the second loss is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},
    {"train.validation_split",
     in<T, &Tr::validation_split>,
     "Share of the images that are not trained on. Their loss, at noise and noise levels that stay the same, is in "
     "metrics.csv and TensorBoard. 0: none.",
     {.range = {.low = 0, .high = 1, .below = true}}},
    {"train.validation_seed",
     in<T, &Tr::validation_seed>,
     "Which images those are, and their noise. Empty: train.seed.",
     {.range = whole_seed}},
    {"train.validate_every_n_steps",
     in<T, &Tr::validate_every_n_steps>,
     "Validate every so many steps.",
     {.range = any_count}},
    {"train.validate_every_n_epochs",
     in<T, &Tr::validate_every_n_epochs>,
     "Validate every so many epochs. Neither: after each epoch. The end of the run is always validated.",
     {.range = any_count}},
    {"train.cfg_scale",
     in<T, &Tr::cfg_scale>,
     "Guidance given to a guidance-distilled model while training.",
     {.range = guidance}},
    {"train.bypass_guidance_embedding", in<T, &Tr::bypass_guidance_embedding>,
     "true: while it is trained, a model that takes a guidance number goes without; samples have theirs. Refused for "
     "models that cannot; true is as good as false for those that take none."},
    {"train.text_cache_limit_gib",
     in<T, &Tr::text_cache_limit_gib>,
     "Disk space that the encodings of captions may take where they are drawn for each use: a run that needs more is "
     "refused, and says which caption_variants would do.",
     {.range = from_zero}},
    {"train.seed", in<T, &Tr::seed>, "Seed of everything random in training.", {.range = whole_seed}},
    {"train.dtype", in<T, &Tr::dtype>, "Type of computation.", {.choices = compute_types}},
    {"train.gradient_checkpointing",
     in<T, &Tr::gradient_checkpointing>,
     "Compute activations of blocks twice to save memory. true: all of them. false: none. auto: as memory.recompute "
     "says.",
     {.choices = checkpointing}},
    {"train.deterministic", in<T, &Tr::deterministic>,
     "Two runs with one seed give the same file, to the bit, on one GPU. false may be faster. The CPU always is."},
    {"train.reduce_dtype",
     in<T, &Tr::reduce_dtype>,
     "Type of gradients on their way between the processes that train together. bfloat16: half the bytes, each "
     "gradient and their sum rounded to 8 bits (docs/scale.md). One process rounds nothing.",
     {.choices = reduce_types}},
    {"train.loss",
     in<T, &Tr::loss>,
     "Loss: the squared error, the absolute one, or one that is square near 0 and straight beyond a width, as kohya's "
     "scripts (huber: 2 c (sqrt(d^2 + c^2) - c), smooth_l1: the same without the factor c) or ai-toolkit have it "
     "(pseudo_huber: sqrt(d^2 + c^2) - c, c = 0.01).",
     {.choices = losses}},
    {"train.huber_c", in<T, &Tr::huber_c>, "The width c of huber and smooth_l1.", {.range = positive}},
    {"train.huber_schedule",
     in<T, &Tr::huber_schedule>,
     "How the width moves with the noise level: exponential (huber_c^t, 1 without noise), snr, which models of "
     "discrete timesteps have, or constant. Empty: snr, or exponential for flow models.",
     {.choices = huber_schedules}},
    {"train.huber_scale",
     in<T, &Tr::huber_scale>,
     "What the width is multiplied by, but not that of snr.",
     {.range = positive}},
    {"train.audio_loss_multiplier",
     in<T, &Tr::audio_loss_multiplier>,
     "What the loss of a clip's sound is multiplied by, beside that of what is seen.",
     {.range = from_zero}},
    {"train.max_loss",
     in<T, &Tr::max_loss>,
     "A batch whose loss is larger teaches nothing; its loss counts as this. 0: all do.",
     {.range = from_zero}},
    {"train.do_differential_guidance", in<T, &Tr::do_differential_guidance>,
     "The loss is taken towards a place that is differential_guidance_scale times as far from what the model says as "
     "the target is, in the same direction: of the squared error the gradient is as many times as large, and the loss "
     "the square of that."},
    {"train.differential_guidance_scale",
     in<T, &Tr::differential_guidance_scale>,
     "With do_differential_guidance: how many times as far.",
     {.range = {.low = 0, .high = 1000, .above = true}}},

    {"slider.positive_prompt", in<L, &SliderConfig::positive_prompt>,
     "Trains a slider in the place of what the images show: an adapter that moves the class towards this prompt at "
     "strength 1, and towards negative_prompt at -1 (docs/sliders.md). Captions and masks are not used. Empty: the "
     "empty prompt, or no slider where negative_prompt is empty, too."},
    {"slider.negative_prompt", in<L, &SliderConfig::negative_prompt>,
     "What the class is moved towards at strength -1."},
    {"slider.target_class", in<L, &SliderConfig::target_class>,
     "Prompt that is moved, such as person. Empty: the empty prompt."},
    {"slider.anchor_class", in<L, &SliderConfig::anchor_class>,
     "Prompt for which the model stays as it was, at both strengths; \"\" is the empty prompt. Left out: none, which "
     "takes a little more than half as long."},
    {"slider.guidance_strength",
     in<L, &SliderConfig::guidance_strength>,
     "How many times the way from negative_prompt to positive_prompt the class is moved.",
     {.range = {.low = 0, .high = 1000, .above = true}}},
    {"slider.anchor_strength",
     in<L, &SliderConfig::anchor_strength>,
     "With anchor_class: what its part of the loss is multiplied by.",
     {.range = {.low = 0, .high = 1e6}}},

    {"sample.sampler",
     in<S, &SampleConfig::sampler>,
     "Sampler, by the id its plugin gives it (lora-host plugins lists them) or as other programs write it: euler_a, "
     "DPM++ 2M Karras. Empty: the model's own.",
     {.normalize = check_sampler}},
    {"sample.scheduler", in<S, &SampleConfig::scheduler>,
     "How noise levels are spaced, by the id that a plugin gives it (docs/samplers.md) or as other programs write it: "
     "normal, as the model was made for, simple, karras, exponential, beta, sgm_uniform. Empty: what stands at the end "
     "of the sampler's name, or the model's own."},
    {"sample.sampler_params", in<S, &SampleConfig::sampler_params>,
     "Options of the sampler, such as eta: 0.5 or solver_type: heun; lora-host plugins --verbose lists them "
     "(docs/samplers.md)."},
    {"sample.scheduler_params", in<S, &SampleConfig::scheduler_params>,
     "Options of the schedule, such as rho: 5 or sigma_min: 0.1."},
    {"sample.sample_every",
     in<S, &SampleConfig::sample_every>,
     "Sample every so many steps. 0: never.",
     {.range = any_count}},
    {"sample.sample_every_n_epochs",
     in<S, &SampleConfig::sample_every_n_epochs>,
     "Sample every so many epochs as well. 0: never.",
     {.range = any_count}},
    {"sample.sample_start_step",
     in<S, &SampleConfig::sample_start_step>,
     "No samples before this step, but for those of sample_at_start.",
     {.range = any_count}},
    {"sample.prompts", in<S, &SampleConfig::prompts>,
     "Prompts, one image each: texts, or mappings of prompt with neg, width, height, seed, guidance_scale, "
     "guidance_rescale, do_cfg_norm, renorm_cfg, cfg_trunc_ratio, sample_steps, network_multiplier and images, which "
     "count for this image. Flags in a text say the same: --n, --w, --h, --d, --l, --s, --m, --gr, --rcfg, --ctr, "
     "--ctrl_img, --ctrl_img_2, --ctrl_img_3, --image, --mask."},
    {"sample.images",
     in<S, &SampleConfig::images>,
     "Images that samples are made from, for models that are given some: by the model's key, such as control, one "
     "file, or a list with one for each prompt.",
     {.lists = true}},
    {"sample.neg", in<S, &SampleConfig::neg>, "Negative prompt."},
    {"sample.width", in<S, &SampleConfig::width>, "Width of samples in pixels.", {.range = side}},
    {"sample.height", in<S, &SampleConfig::height>, "Height of samples in pixels.", {.range = side}},
    {"sample.num_frames",
     in<S, &SampleConfig::num_frames>,
     "Frames of samples, for models of videos. More than one become an animated WebP file, with sound an MP4 file.",
     {.range = frames}},
    {"sample.fps", in<S, &SampleConfig::fps>, "Frames a second that animated samples show.", {.range = frame_rate}},
    {"sample.seed", in<S, &SampleConfig::seed>, "Seed of samples.", {.range = whole_seed}},
    {"sample.walk_seed", in<S, &SampleConfig::walk_seed>, "Prompt i uses seed + i."},
    {"sample.sample_steps",
     in<S, &SampleConfig::sample_steps>,
     "Steps of the sampler. 0: the model's own number.",
     {.range = {.low = 0, .high = 1000}}},
    {"sample.guidance_scale",
     in<S, &SampleConfig::guidance_scale>,
     "Guidance. Empty: the model's own. 1: none, which is twice as fast where the model takes no guidance number.",
     {.range = guidance}},
    {"sample.guidance_rescale",
     in<S, &SampleConfig::guidance_rescale>,
     "Guidance with a negative prompt makes contrast larger, most of all with v-prediction: this share of the way back "
     "to the standard deviation of what the prompt alone gives. 0: as it comes.",
     {.range = share}},
    {"sample.do_cfg_norm", in<S, &SampleConfig::do_cfg_norm>,
     "Guidance with a negative prompt leaves each patch of what the model says as large as with the prompt alone."},
    {"sample.renorm_cfg",
     in<S, &SampleConfig::renorm_cfg>,
     "Guidance with a negative prompt makes what the model says at most this many times as large as with the prompt "
     "alone, as a whole. 0: as it comes. Empty: the model's own.",
     {.range = guidance}},
    {"sample.cfg_trunc_ratio",
     in<S, &SampleConfig::cfg_trunc_ratio>,
     "Guidance with a negative prompt ends when this share of the noise is gone; steps behind it take half the time. "
     "Empty: the model's own.",
     {.range = guidance}},
    {"sample.network_multiplier",
     in<S, &SampleConfig::network_multiplier>,
     "Strength of the trained adapter in samples.",
     {.range = {.low = -100, .high = 100}}},
    {"sample.batch_cfg", in<S, &SampleConfig::batch_cfg>,
     "Guidance needs the model with and without the prompt: true runs both as one batch, which is faster on a large "
     "GPU and takes more memory; false one after the other."},
    {"sample.skip_guidance_layers", in<S, &SampleConfig::skip_guidance_layers>,
     "Skip-layer guidance, for models that have it: samples are led away from what the model says without these "
     "blocks. Empty: the model's own."},
    {"sample.skip_layer_guidance_scale",
     in<S, &SampleConfig::skip_layer_guidance_scale>,
     "How far. 0: not at all. Empty: the model's own.",
     {.range = guidance}},
    {"sample.skip_layer_guidance_start",
     in<S, &SampleConfig::skip_layer_guidance_start>,
     "From this share of the steps on. Empty: the model's own.",
     {.range = share}},
    {"sample.skip_layer_guidance_stop",
     in<S, &SampleConfig::skip_layer_guidance_stop>,
     "Up to this share of the steps. Empty: the model's own.",
     {.range = share}},
    {"sample.sample_at_start", in<S, &SampleConfig::sample_at_start>, "Sample before the first step too."},

    {"save.save_every",
     in<V, &SaveConfig::save_every>,
     "Save every so many steps. 0: only at the end.",
     {.range = any_count}},
    {"save.save_every_n_epochs",
     in<V, &SaveConfig::save_every_n_epochs>,
     "Save every so many epochs as well. 0: never.",
     {.range = any_count}},
    {"save.max_step_saves_to_keep",
     in<V, &SaveConfig::max_step_saves_to_keep>,
     "Older saves of this run are removed beyond this number.",
     {.range = {.low = 1, .high = 1e6}}},
    {"save.dtype", in<V, &SaveConfig::dtype>, "Type of the saved weights.", {.choices = file_types}},
    {"save.format", in<V, &SaveConfig::format>, "Names in the saved file (docs/lora-files.md).", {.choices = formats}},
};

}  // namespace

std::span<const Key> keys() { return table; }

}  // namespace lh::schema
