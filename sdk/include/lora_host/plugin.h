/* plugin.h - the one symbol that a plugin exports, and the record that a host reads before it runs any of its code. */
#ifndef LORA_HOST_PLUGIN_H
#define LORA_HOST_PLUGIN_H

#include "lora_host/host.h"

/* Every field is required. */
typedef struct lh_plugin_entry {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor_needed; /* LH_ABI_MAJOR, LH_TARGET_MINOR */
  const char *id, *version, *license;
  /* Once in a process, before any other call; quick, no GPU. After deinit there may be an init again. [setup] */
  lh_status (*init)(const lh_host*, const char* plugin_path);
  void (*deinit)(void); /* after every other call [setup] */
  /* Static descriptor number `index` of the kind `factory_id` ("lh.model/1", ...); NULL ends the list. [setup] */
  const void* (*factory)(const char* factory_id, uint32_t index);
} lh_plugin_entry;

/* `const lh_plugin_entry lh_plugin` is the exported symbol. Up to abi_minor_needed it is the same in every version. */
#define LH_PLUGIN_SYMBOL "lh_plugin"

/* The same ABI numbers as an ELF note (section .note.lora_host, owner "lora-host", type 1, 2 x u16 descriptor padded to
 * 4 bytes), so that a host refuses a foreign plugin without loading it. */
#define LH_NOTE_SECTION ".note.lora_host"
#define LH_NOTE_OWNER "lora-host"
#define LH_NOTE_TYPE 1

typedef struct lh_abi_note {
  uint32_t owner_size, desc_size, type;
  char owner[12]; /* "lora-host\0" padded to a multiple of 4 */
  uint16_t abi_major, abi_minor_needed;
} lh_abi_note;

#if defined(__GNUC__)
#define LH_ABI_NOTE(minor_needed)                                                                             \
  __attribute__((used, section(LH_NOTE_SECTION), aligned(4))) static const lh_abi_note lh_abi_note_record = { \
      10, 4, LH_NOTE_TYPE, LH_NOTE_OWNER, LH_ABI_MAJOR, (minor_needed)}
#define LH_EXPORT __attribute__((visibility("default")))
#endif

#endif
