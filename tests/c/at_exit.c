/* A program that uses DAT in main, in the destructor of a key when a thread ends, and in a handler of exit(3). The destructor asks
 * to be called again, so that it also runs after those of the library, which has no data of the thread left then.
 *
 * usage: at_exit IA-NAME      prints two_endpoints' "PASS" six times
 */
#define main two_endpoints
#include "two_endpoints.c"
#undef main
#include <pthread.h>

static char **arguments;

static void once_more(void)
{
    NEED(two_endpoints(2, arguments) == 0);
}

static pthread_key_t key;

static void destructor(void *value)
{
    static int calls;

    if (++calls < 3)
        NEED(!pthread_setspecific(key, value));
    once_more();
}

static void *thread(void *value)
{
    /* The library has thread-local data by then. */
    NEED(!pthread_setspecific(key, value));
    once_more();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t one;

    NEED(argc == 2);
    arguments = argv;
    NEED(!pthread_key_create(&key, destructor));
    NEED(!pthread_create(&one, NULL, thread, &key));
    NEED(!pthread_join(one, NULL));
    NEED(!atexit(once_more));
    return two_endpoints(argc, argv);
}
