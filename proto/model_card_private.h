/* model_card_private.h - what model_card.c, model_card_pack.c and their tests share. */
#ifndef REFRAIN_PROTO_MODEL_CARD_PRIVATE_H
#define REFRAIN_PROTO_MODEL_CARD_PRIVATE_H

#include "proto/model_card.h"

#define MODEL_CARD_MAGIC 0x43464d52u /* "RMFC" */
#define MODEL_CARD_VERSION 3u        /* of the packed layout */

/* `data` by mem_alloc: freed with the card. */
void model_card_own(struct model_card *card, void *data);
/* A copy that is freed with the card. */
void *model_card_copy(struct model_card *card, const void *data, size_t bytes);

#endif
