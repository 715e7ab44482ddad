/* jinja_filters.h - filters over sequences, for the table in jinja_filters.c. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_FILTERS_H
#define REFRAIN_ROUTER_TEXT_JINJA_FILTERS_H

#include "router/text/jinja_eval.h"

/* All are jinja_call_fn; parameters as named in the table. */
int jinja_filter_batch(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_filter_dictsort(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret);
int jinja_filter_first(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_filter_groupby(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_filter_items(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_filter_join(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_filter_last(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_filter_list(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_filter_map(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_filter_max(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_filter_min(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_filter_reject(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);
int jinja_filter_rejectattr(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret);
int jinja_filter_reverse(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret);
int jinja_filter_select(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);
int jinja_filter_selectattr(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret);
int jinja_filter_slice(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_filter_sort(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret);
int jinja_filter_sum(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_filter_unique(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret);

#endif
