/* IAs. */
#include <stdio.h>
#include <string.h>

#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"

void open_ia(int node)
{
    struct object *evd;
    uint64_t *out = shared->out, asynchronous;
    snprintf(shared->name, sizeof shared->name, "%s", run.ia);
    out[0] = at(DAT_HANDLE_NULL);
    expect_success();
#ifdef UDAPL_1_2
    succeeded(CALL(node, ia_openv, at(shared->name), 64, at(&out[0]), at(&out[1]), 1, 2, DAT_TRUE));
#else
    succeeded(CALL(node, ia_openv, at(shared->name), 64, at(&out[0]), at(&out[1]), 2, 0, DAT_TRUE));
#endif
    asynchronous = out[0];
    ia_of[node] = add_object(IA, node, out[1]);
    evd = add_object(EVD, node, asynchronous);
    evd->of.evd.asynchronous = evd->of.evd.enabled = evd->of.evd.waitable = true;
    succeeded(CALL(node, ia_query, ia_of[node]->handle, at(&out[0]), DAT_IA_FIELD_ALL, at(&shared->ia), DAT_PROVIDER_FIELD_ALL,
                   at(&shared->provider)));
    if (out[0] != asynchronous)
        fail("dat_ia_query returned the asynchronous EVD %#llx, dat_ia_openv %#llx", (unsigned long long)out[0],
             (unsigned long long)asynchronous);
    memcpy(&shared->address[node], shared->got, sizeof shared->address[node]);
    succeeded(CALL(node, evd_query, asynchronous, DAT_EVD_FIELD_ALL, at(&shared->evd)));
    evd->of.evd.flags = (int)shared->evd.evd_flags;
    evd->of.evd.length = shared->evd.evd_qlen;
}

/* All objects of the node are gone with its IA. */
static void forget(int node)
{
    int i;
    for (i = 0; i < object_count; i++) {
        struct object *one = &objects[i];
        if (!one->alive || one->node != node)
            continue;
        if (one->kind == EP) {
            doom(one);
            drop_posts(one);
        }
        if (one->kind == LMR || one->kind == RMR)
            loosen_users(one);
        one->alive = false;
    }
    for (i = 0; i < post_count; i++)
        if (posts[i].progress == OUTSTANDING && posts[i].srq && posts[i].srq->node == node)
            posts[i].progress = DROPPED;
}

void close_ia(int node)
{
    bool abrupt = chance(60);
    int i, others = 0;
    for (i = 0; i < object_count; i++)
        others += objects[i].alive && objects[i].node == node;
    if (!abrupt && others > 2)
        must_fail(DAT_INVALID_STATE);
    if (abrupt)
        for (i = 0; i < object_count; i++)
            if (objects[i].alive && objects[i].node == node && objects[i].kind == EP)
                doom(&objects[i]);
    if (!succeeded(CALL(node, ia_close, ia_of[node]->handle, abrupt ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG)))
        return;
    forget(node);
    prepare(node);
}
