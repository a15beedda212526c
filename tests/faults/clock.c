/* Preloaded into a process: its wall clock is ahead by as many seconds as the file that CLOCK_AHEAD names says. All who
   have the file mapped see at once what is written there. Needs no header, so that any C compiler makes it. */

struct moment { long seconds; long fraction; };

long syscall(long number, ...);
char *getenv(const char *name);
int open(const char *path, int flags, ...);
void *mmap(void *address, unsigned long length, int protection, int flags, int descriptor, long offset);

#ifdef __aarch64__
#define CLOCK_GETTIME 113
#else
#define CLOCK_GETTIME 228
#endif
#define REALTIME 0
#define REALTIME_COARSE 5

static const long nothing;
static const volatile long *ahead;

static long seconds_ahead(void)
{
    if (!ahead) {
        char *path = getenv("CLOCK_AHEAD");
        void *mapped = path ? mmap(0, sizeof(long), 1, 1, open(path, 02000000), 0) : (void *)-1;
        ahead = mapped == (void *)-1 ? &nothing : mapped;
    }
    return *ahead;
}

int clock_gettime(int clock, struct moment *found)
{
    int failed = syscall(CLOCK_GETTIME, clock, found);
    if (!failed && (clock == REALTIME || clock == REALTIME_COARSE))
        found->seconds += seconds_ahead();
    return failed;
}

int gettimeofday(struct moment *found, void *zone)
{
    int failed = clock_gettime(REALTIME, found);
    found->fraction /= 1000;
    return failed;
}

long time(long *found)
{
    struct moment now;
    clock_gettime(REALTIME, &now);
    if (found)
        *found = now.seconds;
    return now.seconds;
}
