/* Remote keys that were valid once: of freed LMRs, and of binds that another one replaced. */
#ifndef STALE_KEYS_H
#define STALE_KEYS_H

#include "objects.h"

struct stale_key {
    int node;
    uint32_t key;
    struct range range;
    const struct object *pz;
    const struct object *rmr; /* whose bind must have replaced it, or NULL */
};

void add_stale_key(struct stale_key key);

/* Returns a key of the node's memory that must be refused, or NULL. */
const struct stale_key *any_stale_key(int node);

#endif
