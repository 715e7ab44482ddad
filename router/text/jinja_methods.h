/* jinja_methods.h - string methods, for the table in jinja_methods.c.
 *
 * All are jinja_call_fn; parameters as named in the table. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_METHODS_H
#define REFRAIN_ROUTER_TEXT_JINJA_METHODS_H

#include "router/text/jinja_eval.h"

int jinja_str_capitalize(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_str_center(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_count(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_endswith(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_str_find(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret);
int jinja_str_format(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_index(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_isalnum(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_str_isalpha(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_str_isascii(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_str_isdecimal(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);
int jinja_str_isnumeric(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);
int jinja_str_isspace(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_str_join(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret);
int jinja_str_ljust(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_lower(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_lstrip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_partition(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);
int jinja_str_removeprefix(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret);
int jinja_str_removesuffix(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret);
int jinja_str_replace(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_str_rfind(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_rindex(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_rjust(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_rpartition(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_str_rsplit(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_rstrip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_str_split(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_splitlines(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_str_startswith(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_str_strip(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_swapcase(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_str_title(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_upper(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);
int jinja_str_zfill(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret);

/* jinja_tests.c: `is upper` and str.isupper are the same. */
int jinja_test_upper(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_test_lower(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);

#endif
