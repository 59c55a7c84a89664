/* host.h - what the host offers to a plugin: one append-only table. */
#ifndef LORA_HOST_HOST_H
#define LORA_HOST_HOST_H

#include "lora_host/abi.h"

#define LH_LOG_DEBUG 0
#define LH_LOG_INFO 1
#define LH_LOG_WARNING 2
#define LH_LOG_ERROR 3

/* Scope flags. */
#define LH_SCOPE_CHECKPOINT 1u /* a boundary where the host may drop activations and recompute them */

/* A released slot never moves and is never NULL. Read struct_size before using a slot newer than your target. */
typedef struct lh_host_api {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;

  /* Writes a line to the host's log. [any-thread] */
  void (*log)(const lh_host*, int32_t level, const char* utf8);
  /* Remembers why the current call fails and returns `code`: `return api->fail(host, code, "text");` [any-thread] */
  lh_status (*fail)(const lh_host*, lh_status code, const char* utf8);
  /* A service by id, NULL when this host has none. [any-thread] */
  const void* (*extension)(const lh_host*, const char* id);

  /* The weights of the checkpoint, by canonical name: the native key for the denoiser, "<component>:<key>" for the
   * others. Shapes as in the file. During probe only the denoiser's are there. [setup] */
  uint64_t (*weight_count)(const lh_host*);
  lh_status (*weight_at)(const lh_host*, uint64_t index, const char** name, lh_desc* out);
  lh_status (*weight_find)(const lh_host*, const char* name, lh_desc* out); /* LH_E_MODEL when there is none */
  /* A setting of the user, e.g. "variant" of `model:`; LH_E_INVALID when it was not given. [setup] */
  lh_status (*setting)(const lh_host*, const char* key, const char** out);

  /* Graph building. On error the graph keeps the first message and every later call returns at once: calls that give a
   * value give id 0. [build] */
  int32_t (*has_op)(const lh_host*, const char* op);
  lh_value (*input)(lh_graph*, const char* name, const lh_desc*);
  lh_value (*param)(lh_graph*, const char* weight_name);
  lh_value (*constant)(lh_graph*, const lh_desc*, const void* data); /* data is copied */
  /* `op` is "name/revision". Absent optional inputs have id 0. out must have room for n_out values. */
  lh_status (*op)(lh_graph*, const char* op, const lh_value* in, uint32_t n_in, const lh_attr*, uint32_t n_attr,
                  lh_value* out, uint32_t n_out);
  void (*output)(lh_graph*, const char* name, lh_value);
  void (*scope)(lh_graph*, const char* name_or_null_to_pop, uint64_t flags);
  lh_status (*describe)(const lh_graph*, lh_value, lh_desc* out);
} lh_host_api;

#endif
