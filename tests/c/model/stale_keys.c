#include "stale_keys.h"

#include "posts.h"
#include "random.h"

#define KEPT 64

static struct stale_key kept[KEPT];
static int added;

void add_stale_key(struct stale_key key)
{
    if (key.key)
        kept[added++ % KEPT] = key;
}

/* Returns whether no live object has the key again, and the bind that replaced it has succeeded. */
static bool is_refused(const struct stale_key *stale)
{
    const struct object *rmr = stale->rmr;
    int i;
    if (rmr && rmr->alive && (rmr->of.rmr.unknown || rmr->of.rmr.bind->progress != DONE))
        return false;
    for (i = 0; i < object_count; i++) {
        const struct object *one = &objects[i];
        if (one->alive && one->kind == LMR && one->of.lmr.remote_key == stale->key)
            return false;
        if (one->alive && one->kind == RMR && (one->of.rmr.key == stale->key || one->of.rmr.unknown))
            return false;
    }
    return true;
}

const struct stale_key *any_stale_key(int node)
{
    int tries;
    for (tries = 0; tries < 10 && added; tries++) {
        const struct stale_key *stale = &kept[below(added < KEPT ? added : KEPT)];
        if (stale->node == node && is_refused(stale))
            return stale;
    }
    return NULL;
}
