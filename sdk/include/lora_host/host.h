/* host.h - what the host offers to a plugin: one append-only table, which every handle begins with. */
#ifndef LORA_HOST_HOST_H
#define LORA_HOST_HOST_H

#include "lora_host/abi.h"

#define LH_LOG_DEBUG 0
#define LH_LOG_INFO 1
#define LH_LOG_WARNING 2
#define LH_LOG_ERROR 3

/* Scope flags. */
#define LH_SCOPE_CHECKPOINT 1u /* a boundary where the host may drop activations and recompute them */

/* A released slot never moves and is never NULL. LH_HAS tells whether the host has one newer than LH_TARGET_MINOR. */
struct lh_host_api {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;

  /* Writes a line to the host's log. Inside a callback the handle may be NULL. [any-thread] */
  void (*log)(const lh_host*, int32_t level, const char* utf8);
  /* Remembers why the current callback fails and returns `code`: `return api->fail(LH_E_MODEL, "text");`. It belongs to
   * the callback that this thread is in, and the last one counts. [any-thread] */
  lh_status (*fail)(lh_status code, const char* utf8);
  /* The text of the last failure on this thread since the current callback began, of fail() or of a function of this
   * table; "" when there was none. Lives until the next failure or the end of the callback. [any-thread] */
  const char* (*failure)(void);
  /* A service by id, NULL when this host has none. [any-thread] */
  const void* (*extension)(const char* id);
  /* Does this host know the op, "name/revision"? [any-thread] */
  int32_t (*has_op)(const char* op);

  /* The weights of the checkpoint, by canonical name: the native key for the denoiser, "<component>:<key>" for the
   * others; sorted by the bytes of their names. Shapes as in the file. During probe only the denoiser's are there.
   * Names live as long as the lh_model_ctx. [model] */
  uint64_t (*weight_count)(const lh_model_ctx*);
  lh_status (*weight_at)(const lh_model_ctx*, uint64_t index, const char** name, lh_desc* out);
  lh_status (*weight_find)(const lh_model_ctx*, const char* name, lh_desc* out); /* LH_E_MODEL when there is none */
  /* Index of the first weight whose name is not less; weight_count when there is none. Those with a prefix stand side
   * by side from there. [model] */
  uint64_t (*weight_lower_bound)(const lh_model_ctx*, const char* name);

  /* What the user and the model's files say beside the weights. What is absent gives LH_E_MODEL, and failure() says
   * what that is and where it was looked for. Texts live as long as the lh_model_ctx. [model] */
  /* A setting of the user, e.g. "variant" of `model:`. */
  lh_status (*setting)(const lh_model_ctx*, const char* key, const char** out);
  /* A text file of at most 4 MiB from the component's folder ("config.json"), or with component NULL from the folder of
   * the model ("model_index.json", "scheduler/scheduler_config.json"). Components in a single file have none. A file
   * that is there and cannot be read, is no UTF-8 text or, named *.json, no JSON, fails the callback. */
  lh_status (*document)(const lh_model_ctx*, const char* component, const char* name, const char** out);
  /* An entry of __metadata__ of the component's safetensors files. */
  lh_status (*metadata)(const lh_model_ctx*, const char* component, const char* key, const char** out);

  /* Graph building. On error the graph keeps the first message and every later call returns at once: calls that give a
   * value give id 0. [build] */
  lh_value (*input)(lh_graph*, const char* name, const lh_desc*);
  lh_value (*param)(lh_graph*, const char* weight_name);             /* of the lh_model_ctx that is built */
  lh_value (*constant)(lh_graph*, const lh_desc*, const void* data); /* data is copied */
  /* `op` is "name/revision". Absent optional inputs have id 0. out must have room for n_out values. */
  lh_status (*op)(lh_graph*, const char* op, const lh_value* in, uint32_t n_in, const lh_attr*, uint32_t n_attr,
                  lh_value* out, uint32_t n_out);
  void (*output)(lh_graph*, const char* name, lh_value);
  void (*scope)(lh_graph*, const char* name_or_null_to_pop, uint64_t flags);
  lh_status (*describe)(const lh_graph*, lh_value, lh_desc* out);
};

#endif
