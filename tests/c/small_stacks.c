/* Threads with small stacks: one opens an IA, one does all that two_endpoints does.
 *
 * usage: small_stacks IA-NAME BYTES      of a stack; prints two_endpoints' "PASS", then "small_stacks: PASS"
 */
#define main two_endpoints
#include "two_endpoints.c"
#undef main
#include <pthread.h>

static char **arguments;

/* The first open of a process does more than later ones: it reads dat.conf and loads the provider. */
static void *opens(void *unused)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;

    (void)unused;
    CHECK(dat_ia_open(arguments[1], 8, &async, &ia));
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    return NULL;
}

static void *all(void *unused)
{
    (void)unused;
    NEED(two_endpoints(2, arguments) == 0);
    return NULL;
}

static void run(void *(*body)(void *), const char *bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;

    NEED(!pthread_attr_init(&attributes));
    NEED(!pthread_attr_setstacksize(&attributes, strtoul(bytes, NULL, 0)));
    NEED(!pthread_create(&thread, &attributes, body, NULL));
    NEED(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    NEED(argc == 3);
    arguments = argv;
    run(opens, argv[2]);
    run(all, argv[2]);
    puts("small_stacks: PASS");
    return 0;
}
