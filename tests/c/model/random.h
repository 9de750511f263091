/* The generator of a run: its seed determines all choices. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdbool.h>
#include <stdint.h>

extern uint64_t random_state;

/* xorshift64*. */
static inline uint64_t random_word(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1dull;
}

/* Returns a number below `limit`; 0 if that is 0. */
static inline uint32_t below(uint32_t limit)
{
    return limit ? (uint32_t)(random_word() >> 33) % limit : 0;
}

static inline bool chance(uint32_t percent)
{
    return below(100) < percent;
}

static inline void seed_random(uint64_t seed)
{
    int i;
    random_state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (i = 0; i < 10; i++)
        random_word();
}

#endif
