/* card_ends.h - which tokens end an answer. */
#ifndef REFRAIN_PROTO_FILES_CARD_ENDS_H
#define REFRAIN_PROTO_FILES_CARD_ENDS_H

#include "proto/base/json.h"
#include "proto/model_card.h"

/* Add `id` to card->eos_ids unless it is there, is TOKEN_ID_NONE, or there is no room. */
void card_add_end(struct model_card *card, uint32_t id);
/* "eos_token_id" of a config: an id, or a list of them. What is no token is left out. */
void card_add_stated_ends(struct model_card *card, const json_t *config);
/* Fill eos_ids: eos, eot and `eom` of the card, then control tokens known by their text. */
void card_find_ends(struct model_card *card, uint32_t eom);

#endif
