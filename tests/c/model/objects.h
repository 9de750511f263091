/* The model's objects, and its connections. */
#ifndef OBJECTS_H
#define OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "api.h"
#include "memory.h"

#define MAX_OBJECTS 8000
#define MAX_CONNECTIONS 3000
/* Events of a software stream that an EVD may hold. */
#define MAX_SOFTWARE 64

enum kind { IA, PZ, LMR, RMR, EVD, CNO, PSP, RSP, CR, EP, SRQ };

struct object;
struct post;

/* One attempt to connect, and the connection that follows. */
struct connection {
    int id;
    struct object *active, *passive; /* NULL before the accept, and when the active side had given up */
    bool accepted, rejected;
    bool doomed;    /* something was done that may end it */
    bool limited;   /* the attempt has a time limit */
};

/* The next event of a connection that an endpoint awaits. */
enum awaited { NOTHING, OUTCOME, END };

/* Directions of an endpoint's posts. */
enum direction { REQUESTS, RECEIVES };

struct ep {
    DAT_EP_STATE state;
    struct connection *connection;
    struct object *receive_evd, *request_evd, *connect_evd, *srq;
    int most_receives, most_requests, receive_iov, request_iov;
    bool unsignaled; /* DAT_COMPLETION_UNSIGNALLED_FLAG is allowed for requests */
    struct post *oldest[2], *newest[2];
    int outstanding[2];
    enum awaited awaited;
    bool disconnect_called, was_connected;
    int messages_received;
    struct object *cr;   /* the CR whose endpoint this is */
    uint64_t qualifier;  /* of the last attempt */
    int posts_before;    /* number of posts that were made before it was last seen connected */
};

struct evd {
    int flags, length;
    bool enabled, waitable, asynchronous;
    uint64_t software[MAX_SOFTWARE]; /* pointers of the software events that are queued, the oldest first */
    int software_count;
    bool notified; /* its CNO has a notification of it, unless it was taken */
};

struct lmr {
    struct range range;
    int privileges;
    uint32_t local_key, remote_key;
    struct object *base; /* the LMR that a LMR of type LMR stands on */
};

struct rmr {
    struct post *bind;  /* the last one */
    struct object *lmr; /* what it is bound to */
    struct range range;
    int privileges;
    uint32_t key;
    bool unknown; /* a bind failed or was flushed: the key may be any */
};

struct srq {
    int most, posted;
    bool risky;    /* has or had a receive that may fail */
    int watermarks; /* how often it was armed */
};

struct service_point {
    uint64_t qualifier;
    int flags;
    struct object *ep; /* of a RSP */
    bool spent;
};

struct cr {
    struct object *service_point, *ep;
    struct connection *connection;
};

struct object {
    enum kind kind;
    int node;
    bool alive;
    uint64_t handle, context;
    struct object *pz, *evd, *cno; /* what it refers to, as far as its kind does */
    union {
        struct ep ep;
        struct evd evd;
        struct lmr lmr;
        struct rmr rmr;
        struct srq srq;
        struct service_point service_point;
        struct cr cr;
    } of;
};

extern struct object objects[MAX_OBJECTS];
extern int object_count;
extern struct object *ia_of[NODES];
extern const char *const kind_names[];

/* Adds an object with the handle that the library has returned: no live object has it. */
struct object *add_object(enum kind kind, int node, uint64_t handle);

/* Returns a random live object, or NULL. */
struct object *any_object(enum kind kind, int node);

/* Returns a random live EVD with one of the flags, or NULL. */
struct object *any_evd(int node, int flags);

int count_objects(enum kind kind, int node);

/* Returns the live object with the handle in the process of `node`, or NULL. */
struct object *find_object(enum kind kind, int node, uint64_t handle);

/* Returns whether any live object of the process has the handle. */
bool is_live(int node, uint64_t handle);

/* Returns whether a live object refers to this one, so that it cannot be freed. */
bool is_used(const struct object *object);

/* Returns a handle for an argument: mostly of a live object, which is `*object`. Now and then it is that of one that was freed; `*object` is
 * NULL then, and the call must fail. */
uint64_t handle_for(enum kind kind, int node, struct object **object);

static inline uint64_t handle_of(const struct object *object)
{
    return object ? object->handle : 0;
}

struct connection *add_connection(struct object *active);

/* Returns the connection with the id that private data state. */
struct connection *find_connection(uint64_t id);

/* Returns the other endpoint of the connection, or NULL if there is none, or it has another connection now. */
struct object *peer_of(const struct object *ep);

/* From now on the connection of the endpoint may end at any time. */
void doom(struct object *ep);

/* Asks for the endpoint's state, and checks that it may have changed so. */
DAT_EP_STATE state_of(struct object *ep);

/* Whether receives, or requests, are idle: of the last state_of. */
extern bool idle[2];

#endif
