/* The model's posts: each must complete once, in its order, with the right status, length and bytes. */
#ifndef POSTS_H
#define POSTS_H

#include "objects.h"

#define MAX_POSTS 60000
#define MAX_SEGMENTS 4
/* Each receive that is not risky has room for a message of this size, and no message is longer unless it is to fail. */
#define MESSAGE 4096

enum post_kind { SEND, WRITE, READ, BIND, WRITE_IMMEDIATE, FETCH_ADD, RECEIVE };
extern const char *const post_names[];

/* What must come of a post as long as nothing dooms the connection. */
enum outcome {
    SUCCEEDS,
    REFUSED, /* it fails with `status` */
    ANY,
};

struct post {
    enum post_kind kind;
    enum { UNUSED, OUTSTANDING, DONE, DROPPED } progress;
    struct object *ep, *srq, *rmr;
    struct connection *connection;
    struct post *next; /* of the endpoint and direction */
    enum outcome outcome;
    int status;
    bool suppressed; /* no completion if it succeeds */
    bool fenced;     /* it waits for the READs and atomics before it */
    struct range local[MAX_SEGMENTS];
    struct object *used[MAX_SEGMENTS + 2]; /* LMRs and RMRs: once one is freed, the outcome is open */
    int segments, used_count;
    struct range remote;
    int remote_node;
    uint64_t length;
    uint32_t immediate;
};

extern struct post posts[MAX_POSTS];
extern int post_count;

/* Prepares a post; it counts once it is added. */
struct post *new_post(enum post_kind kind, struct object *ep);

/* Adds a post that the library has taken. */
void add_post(struct post *post);

enum direction direction_of(const struct post *post);

/* Whether the post takes a receive of the peer. */
bool is_message(const struct post *post);

/* The cookie of a post, and back; the latter fails if there is none. */
uint64_t cookie_of(const struct post *post);
struct post *post_of(uint64_t cookie);

/* The outcome becomes open. */
void loosen(struct post *post);

/* Loosens all outstanding posts that use the LMR or RMR. */
void loosen_users(const struct object *used);

/* The endpoint was reset or freed: its posts complete no more. */
void drop_posts(struct object *ep);

/* Returns whether a receive may fail that the endpoint has. */
bool has_risky_receives(const struct object *ep);

/* Checks that the bytes at `to` are those of the pattern at `from`, unless another post may have written there. */
void compare_bytes(const struct post *post, const struct post *writer, int from_node, const struct range *from, int from_count,
                   int to_node, const struct range *to, int to_count, uint64_t length);

#endif
