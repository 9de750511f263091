#include "objects.h"

#include <string.h>

#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"

struct object objects[MAX_OBJECTS];
int object_count;
struct object *ia_of[NODES];
const char *const kind_names[] = {"IA", "PZ", "LMR", "RMR", "EVD", "CNO", "PSP", "RSP", "CR", "EP", "SRQ"};
bool idle[2];
static struct connection connections[MAX_CONNECTIONS];
static int connection_count;

static bool same_process(const struct object *object, int node)
{
    return process_of(object->node) == process_of(node);
}

struct object *add_object(enum kind kind, int node, uint64_t handle)
{
    struct object *added;
    if (object_count == MAX_OBJECTS)
        fail("more than %d objects; use fewer steps", MAX_OBJECTS);
    if (is_live(node, handle))
        fail("a new %s has the handle %#llx of a live object", kind_names[kind], (unsigned long long)handle);
    added = &objects[object_count++];
    memset(added, 0, sizeof *added);
    added->kind = kind;
    added->node = node;
    added->alive = true;
    added->handle = handle;
    return added;
}

struct object *any_object(enum kind kind, int node)
{
    struct object *chosen = NULL;
    int i;
    uint32_t seen = 0;
    for (i = 0; i < object_count; i++) {
        struct object *one = &objects[i];
        if (one->alive && one->kind == kind && one->node == node && below(++seen) == 0)
            chosen = one;
    }
    return chosen;
}

struct object *any_evd(int node, int flags)
{
    struct object *chosen = NULL;
    int i;
    uint32_t seen = 0;
    for (i = 0; i < object_count; i++) {
        struct object *one = &objects[i];
        if (one->alive && one->kind == EVD && one->node == node && (one->of.evd.flags & flags) && below(++seen) == 0)
            chosen = one;
    }
    return chosen;
}

int count_objects(enum kind kind, int node)
{
    int i, count = 0;
    for (i = 0; i < object_count; i++)
        count += objects[i].alive && objects[i].kind == kind && objects[i].node == node;
    return count;
}

struct object *find_object(enum kind kind, int node, uint64_t handle)
{
    int i;
    for (i = object_count - 1; i >= 0; i--) {
        struct object *one = &objects[i];
        if (one->alive && one->kind == kind && one->handle == handle && same_process(one, node))
            return one;
    }
    return NULL;
}

bool is_live(int node, uint64_t handle)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].handle == handle && same_process(&objects[i], node))
            return true;
    return false;
}

static bool refers(const struct object *one, const struct object *to)
{
    if (one->pz == to || one->evd == to || one->cno == to)
        return true;
    switch (one->kind) {
    case EP:
        return one->of.ep.receive_evd == to || one->of.ep.request_evd == to || one->of.ep.connect_evd == to ||
               one->of.ep.srq == to;
    case LMR:
        return one->of.lmr.base == to;
    case RMR:
        return one->of.rmr.lmr == to;
    default:
        return false;
    }
}

bool is_used(const struct object *object)
{
    int i;
    if (object->kind == EVD && object->of.evd.asynchronous)
        return true;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].kind != CR && refers(&objects[i], object))
            return true;
    return false;
}

/* Returns the handle of an object of the node that was freed and has no successor, or 0. */
static uint64_t stale_handle(enum kind kind, int node)
{
    int tries;
    for (tries = 0; tries < 20 && object_count; tries++) {
        struct object *one = &objects[below(object_count)];
        if (!one->alive && one->kind == kind && one->node == node && !is_live(node, one->handle))
            return one->handle;
    }
    return 0;
}

uint64_t handle_for(enum kind kind, int node, struct object **object)
{
    *object = chance(3) && kind != IA ? NULL : any_object(kind, node);
    if (*object)
        return (*object)->handle;
    must_fail(DAT_INVALID_HANDLE);
    return kind == IA ? 0 : stale_handle(kind, node);
}

struct connection *add_connection(struct object *active)
{
    struct connection *added;
    if (connection_count == MAX_CONNECTIONS)
        fail("more than %d connections; use fewer steps", MAX_CONNECTIONS);
    added = &connections[connection_count];
    *added = (struct connection){.id = connection_count++, .active = active};
    return added;
}

struct connection *find_connection(uint64_t id)
{
    if (id >= (uint64_t)connection_count)
        fail("a request has the private data of connection %llu, which nobody began", (unsigned long long)id);
    return &connections[id];
}

struct object *peer_of(const struct object *ep)
{
    struct connection *connection = ep->of.ep.connection;
    struct object *peer = NULL;
    if (connection)
        peer = connection->active == ep ? connection->passive : connection->active;
    return peer && peer->alive && peer->of.ep.connection == connection ? peer : NULL;
}

void doom(struct object *ep)
{
    if (ep->of.ep.connection)
        ep->of.ep.connection->doomed = true;
}

static bool may_become(const struct object *ep, DAT_EP_STATE now)
{
    switch (ep->of.ep.state) {
    case DAT_EP_STATE_ACTIVE_CONNECTION_PENDING:
    case DAT_EP_STATE_COMPLETION_PENDING:
        return now == DAT_EP_STATE_CONNECTED || now == DAT_EP_STATE_DISCONNECTED;
    case DAT_EP_STATE_CONNECTED:
    case DAT_EP_STATE_DISCONNECT_PENDING:
        return now == DAT_EP_STATE_DISCONNECTED;
    case DAT_EP_STATE_RESERVED:
        return now == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;
    default:
        return false;
    }
}

DAT_EP_STATE state_of(struct object *ep)
{
    struct ep *model = &ep->of.ep;
    DAT_EP_STATE now, before = model->state;
    enum function function = called;
    uint32_t code = CALL(ep->node, ep_get_status, ep->handle, at(&shared->out[0]), at(&shared->out[1]), at(&shared->out[2]));
    if (code != DAT_SUCCESS)
        fail("dat_ep_get_status of a live endpoint returned %#x", code);
    now = (DAT_EP_STATE)(uint32_t)shared->out[0];
    called = function;
    idle[RECEIVES] = (uint32_t)shared->out[1];
    idle[REQUESTS] = (uint32_t)shared->out[2];
    if (now == DAT_EP_STATE_CONNECTED)
        model->posts_before = post_count;
    unnote();
    if (now == before)
        return now;
    note("    ep %llx: state %d", (unsigned long long)ep->handle, now);
    if (!may_become(ep, now))
        fail("endpoint %#llx went from state %d to %d by itself", (unsigned long long)ep->handle, before, now);
    if (now == DAT_EP_STATE_DISCONNECTED && before != DAT_EP_STATE_ACTIVE_CONNECTION_PENDING && model->connection &&
        !model->connection->doomed)
        fail("the connection of endpoint %#llx, in state %d, ended without a cause", (unsigned long long)ep->handle, before);
    if (now == DAT_EP_STATE_DISCONNECTED)
        doom(ep);
    model->was_connected |= now == DAT_EP_STATE_CONNECTED;
    model->state = now;
    return now;
}
