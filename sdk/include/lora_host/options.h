/* options.h - what a user may set of a part of a plugin: name, type, range and help of each option.
 *
 * A descriptor lists its options. The host checks what the user wrote against the list before it calls the part's
 * create: an unknown name, another type, a number out of range or not finite is an error of the configuration, with
 * its place and the nearest name. create is then given every option that has a value, the user's or the default, in the
 * order of the list:
 *
 *   type              as lh_attr                                      what the user writes
 *   LH_OPTION_FLOAT   LH_ATTR_F64                                     1e-4
 *   LH_OPTION_INT     LH_ATTR_I64                                     5
 *   LH_OPTION_BOOL    LH_ATTR_I64, 0 or 1                             true
 *   LH_OPTION_CHOICE  LH_ATTR_STRING, one of `choices`                cosine
 *   LH_OPTION_FLOATS  LH_ATTR_F64_LIST, `count` numbers where not 0   [0.9, 0.999]
 *
 * `lora-host plugins --verbose` prints the list.
 */
#ifndef LORA_HOST_OPTIONS_H
#define LORA_HOST_OPTIONS_H

#include "lora_host/abi.h"

#define LH_OPTION_FLOAT 0
#define LH_OPTION_INT 1
#define LH_OPTION_BOOL 2
#define LH_OPTION_CHOICE 3
#define LH_OPTION_FLOATS 4

/* Flags of an option. The limits hold for each number of a list. */
#define LH_OPTION_MIN 1u       /* no number is below `min` */
#define LH_OPTION_MAX 2u       /* no number is above `max` */
#define LH_OPTION_ABOVE 4u     /* with LH_OPTION_MIN: nor is it `min` itself */
#define LH_OPTION_BELOW 8u     /* with LH_OPTION_MAX: nor is it `max` itself */
#define LH_OPTION_NULLABLE 16u /* the user may write null, and create is then not given the option */

/* Frozen: used in arrays, which end with an option whose name is NULL. */
typedef struct lh_option {
  const char* name;
  int32_t type;   /* LH_OPTION_* */
  uint32_t flags; /* LH_OPTION_MIN, ... */
  uint32_t count; /* of LH_OPTION_FLOATS: how many numbers; 0 = any number of them, at least one */
  const char*
      otherwise; /* the default as the user would write it; NULL: create is given the option only when it is set */
  double min, max;
  const char* const* choices; /* of LH_OPTION_CHOICE, NULL-terminated; NULL for other types */
  const char* help;           /* a sentence */
} lh_option;

#endif
