#include "posts.h"

#include <string.h>

#include "report.h"

#define COOKIE 0xabcd000000000000ull

struct post posts[MAX_POSTS];
int post_count;
const char *const post_names[] = {"send", "write", "read", "bind", "write with immediate data", "fetch and add", "receive"};

struct post *new_post(enum post_kind kind, struct object *ep)
{
    struct post *post = &posts[post_count];
    if (post_count == MAX_POSTS - 1)
        fail("more than %d posts; use fewer steps", MAX_POSTS);
    memset(post, 0, sizeof *post);
    post->kind = kind;
    post->ep = ep;
    post->connection = ep ? ep->of.ep.connection : NULL;
    return post;
}

enum direction direction_of(const struct post *post)
{
    return post->kind == RECEIVE ? RECEIVES : REQUESTS;
}

bool is_message(const struct post *post)
{
    return post->kind == SEND || post->kind == WRITE_IMMEDIATE;
}

void add_post(struct post *post)
{
    enum direction direction = direction_of(post);
    struct ep *ep;
    post->progress = OUTSTANDING;
    post_count++;
    if (!post->ep) {
        post->srq->of.srq.posted++;
        if (post->outcome != SUCCEEDS)
            loosen(post);
        return;
    }
    ep = &post->ep->of.ep;
    if (ep->newest[direction])
        ep->newest[direction]->next = post;
    else
        ep->oldest[direction] = post;
    ep->newest[direction] = post;
    ep->outstanding[direction]++;
    if (post->outcome != SUCCEEDS)
        doom(post->ep);
}

uint64_t cookie_of(const struct post *post)
{
    return (uint64_t)(post - posts) ^ COOKIE;
}

struct post *post_of(uint64_t cookie)
{
    if ((cookie ^ COOKIE) >= (uint64_t)post_count)
        fail("a completion has the cookie %#llx, which no post has", (unsigned long long)cookie);
    return &posts[cookie ^ COOKIE];
}

void loosen(struct post *post)
{
    int i;
    post->outcome = ANY;
    if (post->ep)
        doom(post->ep);
    if (!post->srq)
        return;
    post->srq->of.srq.risky = true;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].kind == EP && objects[i].of.ep.srq == post->srq)
            doom(&objects[i]);
}

void loosen_users(const struct object *used)
{
    int i, j;
    for (i = 0; i < post_count; i++)
        for (j = 0; j < posts[i].used_count; j++)
            if (posts[i].progress == OUTSTANDING && posts[i].used[j] == used)
                loosen(&posts[i]);
}

void drop_posts(struct object *ep)
{
    int direction;
    for (direction = REQUESTS; direction <= RECEIVES; direction++) {
        struct post *post;
        for (post = ep->of.ep.oldest[direction]; post; post = post->next) {
            post->progress = DROPPED;
            if (post->kind == BIND)
                post->rmr->of.rmr.unknown = true;
        }
        ep->of.ep.oldest[direction] = ep->of.ep.newest[direction] = NULL;
        ep->of.ep.outstanding[direction] = 0;
    }
}

bool has_risky_receives(const struct object *ep)
{
    const struct post *post;
    if (ep->of.ep.srq)
        return ep->of.ep.srq->of.srq.risky;
    for (post = ep->of.ep.oldest[RECEIVES]; post; post = post->next)
        if (post->outcome != SUCCEEDS)
            return true;
    return false;
}

static bool overlap(struct range one, struct range other)
{
    return one.start < other.start + other.length && other.start < one.start + one.length;
}

/* Returns whether `post` may write to the range of the node. */
static bool may_write(const struct post *post, int node, struct range range)
{
    int i;
    bool locally = post->kind == RECEIVE || post->kind == READ || post->kind == FETCH_ADD;
    bool remotely = post->kind == WRITE || post->kind == WRITE_IMMEDIATE || post->kind == FETCH_ADD;
    if (locally && (post->ep ? post->ep : post->srq)->node == node)
        for (i = 0; i < post->segments; i++)
            if (overlap(post->local[i], range))
                return true;
    return remotely && post->remote_node == node && overlap(post->remote, range);
}

/* Returns whether another post than the writer may have written there, or the writer did so twice. */
static bool is_shared(const struct post *writer, int node, const struct range *ranges, int count)
{
    int i, j;
    for (i = 0; i < count; i++) {
        for (j = 0; j < i; j++)
            if (overlap(ranges[i], ranges[j]))
                return true;
        for (j = 0; j < post_count; j++)
            if (&posts[j] != writer && may_write(&posts[j], node, ranges[i]))
                return true;
    }
    return false;
}

/* A position in a list of ranges. */
struct position {
    const struct range *ranges;
    int left;
    uint64_t offset;
};

/* Returns the address at the position and moves on by a byte; 0 at the end. */
static uint64_t next_address(struct position *position)
{
    while (position->left && position->offset == position->ranges->length) {
        position->ranges++;
        position->left--;
        position->offset = 0;
    }
    return position->left ? position->ranges->start + position->offset++ : 0;
}

void compare_bytes(const struct post *post, const struct post *writer, int from_node, const struct range *from, int from_count,
                   int to_node, const struct range *to, int to_count, uint64_t length)
{
    struct position source = {from, from_count, 0}, target = {to, to_count, 0};
    uint64_t i;
    for (i = 0; i < length; i++) {
        uint64_t from_address = next_address(&source), to_address = next_address(&target);
        struct range byte = {from_address, 1};
        unsigned char wanted, found;
        if (!from_address || !to_address || !in_area(from_node, byte, false))
            return;
        wanted = pattern_at(from_node, from_address);
        found = *(volatile unsigned char *)(uintptr_t)to_address;
        if (found != wanted && !is_shared(writer, to_node, to, to_count))
            fail("%s %d: byte %llu of %llu is %#x, not %#x", post_names[post->kind], (int)(post - posts),
                 (unsigned long long)i, (unsigned long long)length, found, wanted);
    }
}
