// Preloaded into lora-host by the crash test: counts the calls that concern the watched folder, and the allocations of
// memory, and lets the nth of them fail, come out short or be the last thing that the process does.
//
// The program is loaded once and waits before main(); each request is served by a fork that goes on into main(), so a
// run costs no loading of libraries.
#define _GNU_SOURCE
#include "faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* const names[] = {
#define NAME(name, flags) #name,
    FAULT_CALLS(NAME)
#undef NAME
};
static const int classes[] = {
#define CLASS(name, flags) flags,
    FAULT_CALLS(CLASS)
#undef CLASS
};

static struct fault_request request;  // armed: of this process
static struct fault_shared* shared;   // NULL: nothing is counted
static size_t folder_length;
enum { most_files = 4096 };
static bool watched[most_files];  // descriptors of files in the folder

#define REAL(result, name, ...)       \
  static result (*real)(__VA_ARGS__); \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, name)

// --- what is watched

static bool of_file(int fd) { return shared != NULL && fd >= 0 && fd < most_files && watched[fd]; }
static void mark(int fd, bool is) {
  if (fd >= 0 && fd < most_files) watched[fd] = is;
}

static bool below(int folder, const char* path) {
  if (shared == NULL || path == NULL) return false;
  static const char descriptors[] = "/proc/self/fd/";
  if (strncmp(path, descriptors, sizeof descriptors - 1) == 0) return of_file(atoi(path + sizeof descriptors - 1));
  if (path[0] != '/') return folder != AT_FDCWD && of_file(folder);
  return strncmp(path, request.folder, folder_length) == 0 && (path[folder_length] == '/' || path[folder_length] == 0);
}

// --- what happens

static void note(const char* call, int fd, const char* path) {
  if (__atomic_fetch_add(&shared->fired, 1, __ATOMIC_SEQ_CST) != 0) return;
  char link[32], target[400];
  if (path == NULL) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    path = target;
  }
  snprintf(shared->place, sizeof shared->place, "%s %s", call, path);
}

static void end_all(void) {
  kill(0, SIGKILL);
  for (;;) pause();
}

// Counts the call. fault_none: it goes on; fault_fail: errno is set; fault_short, fault_tear, fault_lie: of its bytes.
static enum fault_action at_call(enum fault_call call, int fd, const char* path) {
  const int64_t index = __atomic_fetch_add(&shared->calls, 1, __ATOMIC_SEQ_CST);
  if (index < fault_most_calls) shared->kinds[index] = (uint8_t)call;
  enum fault_action action = (enum fault_action)request.action;
  if (action == fault_none || action == fault_alloc || action == fault_alloc_stuck || index < request.nth)
    return fault_none;
  if (action == fault_stuck) {
    if (request.error == ENOSPC && !(classes[call] & FAULT_SPACE)) return fault_none;
    action = fault_fail;
  } else if (index != request.nth) {
    return fault_none;
  }
  note(names[call], fd, path);
  switch (action) {
    case fault_kill: end_all(); break;
    case fault_fail: errno = request.error; break;
    case fault_crash: raise(SIGSEGV); break;
    case fault_hang:
      for (;;) pause();
    default: break;
  }
  return action;
}

static size_t half(size_t count) { return count > 1 ? count / 2 : count; }

// --- descriptors

static int opened(int fd, int folder, const char* path) {
  mark(fd, fd >= 0 && below(folder, path));
  return fd;
}

static bool creates(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }

static bool refused_open(int folder, const char* path, int flags) {
  if (!below(folder, path)) return false;
  return at_call(creates(flags) ? fault_on_create : fault_on_open, -1, path) == fault_fail;
}

#define MODE_ARGUMENT                  \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list list;                      \
    va_start(list, flags);             \
    mode = va_arg(list, mode_t);       \
    va_end(list);                      \
  }

#define DEFINE_OPEN(name)                                   \
  int name(const char* path, int flags, ...) {              \
    REAL(int, #name, const char*, int, ...);                \
    MODE_ARGUMENT                                           \
    if (refused_open(AT_FDCWD, path, flags)) return -1;     \
    return opened(real(path, flags, mode), AT_FDCWD, path); \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) {        \
    REAL(int, #name, int, const char*, int, ...);                 \
    MODE_ARGUMENT                                                 \
    if (refused_open(folder, path, flags)) return -1;             \
    return opened(real(folder, path, flags, mode), folder, path); \
  }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

#define DEFINE_FOPEN(name)                                                             \
  FILE* name(const char* path, const char* how) {                                      \
    REAL(FILE*, #name, const char*, const char*);                                      \
    if (refused_open(AT_FDCWD, path, how[0] == 'r' ? O_RDONLY : O_CREAT)) return NULL; \
    FILE* file = real(path, how);                                                      \
    if (file != NULL) opened(fileno(file), AT_FDCWD, path);                            \
    return file;                                                                       \
  }
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

int close(int fd) {
  REAL(int, "close", int);
  const bool ours = of_file(fd);
  const bool fails = ours && at_call(fault_on_close, fd, NULL) == fault_fail;
  const int error = errno;
  mark(fd, false);
  const int result = real(fd);  // the descriptor is gone whatever close() says
  if (fails) errno = error;
  return fails ? -1 : result;
}

int fcntl64(int fd, int command, ...) {
  REAL(int, "fcntl64", int, int, ...);
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  const int result = real(fd, command, argument);
  if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0) mark(result, of_file(fd));
  return result;
}
int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  return fcntl64(fd, command, argument);
}

// --- data

#define DEFINE_DATA(type, name, kind, fd, count, full, part, ...) \
  type name(__VA_ARGS__) {                                        \
    REAL(type, #name, __VA_ARGS__);                               \
    if (!of_file(fd)) return full;                                \
    switch (at_call(kind, fd, NULL)) {                            \
      case fault_fail: return -1;                                 \
      case fault_lie: return (type)(count);                       \
      case fault_short: return part;                              \
      case fault_tear:                                            \
        (void)!part;                                              \
        end_all();                                                \
        return -1;                                                \
      default: return full;                                       \
    }                                                             \
  }
DEFINE_DATA(ssize_t, read, fault_on_read, fd, n, real(fd, data, n), real(fd, data, half(n)), int fd, void* data,
            size_t n)
DEFINE_DATA(ssize_t, write, fault_on_write, fd, n, real(fd, data, n), real(fd, data, half(n)), int fd, const void* data,
            size_t n)
DEFINE_DATA(ssize_t, pread, fault_on_pread, fd, n, real(fd, data, n, at), real(fd, data, half(n), at), int fd,
            void* data, size_t n, off_t at)
DEFINE_DATA(ssize_t, pread64, fault_on_pread, fd, n, real(fd, data, n, at), real(fd, data, half(n), at), int fd,
            void* data, size_t n, off64_t at)
DEFINE_DATA(ssize_t, pwrite, fault_on_pwrite, fd, n, real(fd, data, n, at), real(fd, data, half(n), at), int fd,
            const void* data, size_t n, off_t at)
DEFINE_DATA(ssize_t, pwrite64, fault_on_pwrite, fd, n, real(fd, data, n, at), real(fd, data, half(n), at), int fd,
            const void* data, size_t n, off64_t at)
DEFINE_DATA(ssize_t, writev, fault_on_write, fd, all->iov_len, real(fd, all, n), real(fd, all, 1), int fd,
            const struct iovec* all, int n)

// --- calls that only succeed or fail

#define DEFINE_OF_FILE(name, kind, call, ...)                                     \
  int name(__VA_ARGS__) {                                                         \
    REAL(int, #name, __VA_ARGS__);                                                \
    return of_file(fd) && at_call(kind, fd, NULL) == fault_fail ? -1 : real call; \
  }
DEFINE_OF_FILE(fsync, fault_on_fsync, (fd), int fd)
DEFINE_OF_FILE(fdatasync, fault_on_fsync, (fd), int fd)
DEFINE_OF_FILE(flock, fault_on_flock, (fd, how), int fd, int how)
DEFINE_OF_FILE(ftruncate, fault_on_ftruncate, (fd, size), int fd, off_t size)
DEFINE_OF_FILE(ftruncate64, fault_on_ftruncate, (fd, size), int fd, off64_t size)
DEFINE_OF_FILE(fallocate, fault_on_fallocate, (fd, mode, at, size), int fd, int mode, off_t at, off_t size)
DEFINE_OF_FILE(fallocate64, fault_on_fallocate, (fd, mode, at, size), int fd, int mode, off64_t at, off64_t size)
DEFINE_OF_FILE(fstat, fault_on_stat, (fd, out), int fd, struct stat* out)
DEFINE_OF_FILE(fstat64, fault_on_stat, (fd, out), int fd, struct stat64* out)
DEFINE_OF_FILE(fstatvfs, fault_on_statvfs, (fd, out), int fd, struct statvfs* out)
DEFINE_OF_FILE(fchmod, fault_on_chmod, (fd, mode), int fd, mode_t mode)

#define DEFINE_OF_PATH(name, kind, folder, call, ...)                                     \
  int name(__VA_ARGS__) {                                                                 \
    REAL(int, #name, __VA_ARGS__);                                                        \
    return below(folder, path) && at_call(kind, -1, path) == fault_fail ? -1 : real call; \
  }
DEFINE_OF_PATH(stat, fault_on_stat, AT_FDCWD, (path, out), const char* path, struct stat* out)
DEFINE_OF_PATH(stat64, fault_on_stat, AT_FDCWD, (path, out), const char* path, struct stat64* out)
DEFINE_OF_PATH(lstat, fault_on_stat, AT_FDCWD, (path, out), const char* path, struct stat* out)
DEFINE_OF_PATH(lstat64, fault_on_stat, AT_FDCWD, (path, out), const char* path, struct stat64* out)
DEFINE_OF_PATH(fstatat, fault_on_stat, at, (at, path, out, flags), int at, const char* path, struct stat* out,
               int flags)
DEFINE_OF_PATH(fstatat64, fault_on_stat, at, (at, path, out, flags), int at, const char* path, struct stat64* out,
               int flags)
DEFINE_OF_PATH(statvfs, fault_on_statvfs, AT_FDCWD, (path, out), const char* path, struct statvfs* out)
DEFINE_OF_PATH(statvfs64, fault_on_statvfs, AT_FDCWD, (path, out), const char* path, struct statvfs64* out)
DEFINE_OF_PATH(access, fault_on_access, AT_FDCWD, (path, mode), const char* path, int mode)
DEFINE_OF_PATH(mkdir, fault_on_mkdir, AT_FDCWD, (path, mode), const char* path, mode_t mode)
DEFINE_OF_PATH(rmdir, fault_on_unlink, AT_FDCWD, (path), const char* path)
DEFINE_OF_PATH(unlink, fault_on_unlink, AT_FDCWD, (path), const char* path)
DEFINE_OF_PATH(unlinkat, fault_on_unlink, at, (at, path, flags), int at, const char* path, int flags)
DEFINE_OF_PATH(remove, fault_on_unlink, AT_FDCWD, (path), const char* path)
DEFINE_OF_PATH(rename, fault_on_rename, AT_FDCWD, (path, to), const char* path, const char* to)
DEFINE_OF_PATH(link, fault_on_link, AT_FDCWD, (path, to), const char* path, const char* to)
DEFINE_OF_PATH(chmod, fault_on_chmod, AT_FDCWD, (path, mode), const char* path, mode_t mode)
DEFINE_OF_PATH(fchmodat, fault_on_chmod, at, (at, path, mode, flags), int at, const char* path, mode_t mode, int flags)

int bind(int fd, const struct sockaddr* address, socklen_t length) {
  REAL(int, "bind", int, const struct sockaddr*, socklen_t);
  const char* path = address->sa_family == AF_UNIX ? ((const struct sockaddr_un*)address)->sun_path : NULL;
  if (below(AT_FDCWD, path) && at_call(fault_on_bind, -1, path) == fault_fail) return -1;
  return real(fd, address, length);
}

DIR* opendir(const char* path) {
  REAL(DIR*, "opendir", const char*);
  if (below(AT_FDCWD, path) && at_call(fault_on_opendir, -1, path) == fault_fail) return NULL;
  DIR* stream = real(path);
  if (stream != NULL) opened(dirfd(stream), AT_FDCWD, path);
  return stream;
}

int closedir(DIR* stream) {
  REAL(int, "closedir", DIR*);
  mark(dirfd(stream), false);
  return real(stream);
}

#define DEFINE_READDIR(type, name)                                                                           \
  type* name(DIR* stream) {                                                                                  \
    REAL(type*, #name, DIR*);                                                                                \
    if (of_file(dirfd(stream)) && at_call(fault_on_readdir, dirfd(stream), NULL) == fault_fail) return NULL; \
    return real(stream);                                                                                     \
  }
DEFINE_READDIR(struct dirent, readdir)
DEFINE_READDIR(struct dirent64, readdir64)

// --- memory

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

static bool refused_memory(void) {
  if (shared == NULL) return false;
  const int64_t index = __atomic_fetch_add(&shared->allocations, 1, __ATOMIC_RELAXED);
  const bool stuck = request.action == fault_alloc_stuck;
  if ((request.action != fault_alloc && !stuck) || index < request.nth || (!stuck && index != request.nth))
    return false;
  if (__atomic_fetch_add(&shared->fired, 1, __ATOMIC_SEQ_CST) == 0) strcpy(shared->place, "an allocation");
  errno = ENOMEM;
  return true;
}

void* malloc(size_t size) { return refused_memory() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return refused_memory() ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return refused_memory() ? NULL : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return refused_memory() ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  void* data = memalign(alignment, size);
  if (data == NULL) return ENOMEM;
  *out = data;
  return 0;
}

// --- the server

static void read_all(int fd, void* data, size_t size) {
  for (char* at = data; size > 0;) {
    const ssize_t got = read(fd, at, size);
    if (got <= 0) _exit(0);  // the driver is done
    at += got;
    size -= (size_t)got;
  }
}

static int (*real_main)(int, char**, char**);

static int run_request(char* words, char** environment) {
  setpgid(0, 0);
  int log = open(request.log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  int none = open("/dev/null", O_RDONLY);
  dup2(none, 0);
  dup2(log, 1);
  dup2(log, 2);
  close(none);
  close(log);
  char** list = calloc(request.word_count + 1, sizeof(char*));
  for (uint32_t i = 0; i < request.word_count; ++i, words += strlen(words) + 1) list[i] = words;
  folder_length = strlen(request.folder);
  const char* memory = getenv("LORA_FAULT_SHARED");
  const int fd = open(memory, O_RDWR | O_CLOEXEC);
  void* mapped = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) _exit(99);
  unsetenv("LD_PRELOAD");
  shared = mapped;  // from here on calls count
  return real_main((int)request.word_count, list, environment);
}

static int serve(int count, char** arguments, char** environment) {
  if (getenv("LORA_FAULT_SHARED") == NULL) return real_main(count, arguments, environment);
  const int answers = fcntl(1, F_DUPFD_CLOEXEC, 10);
  for (;;) {
    read_all(0, &request, sizeof request);
    char* words = malloc(request.word_bytes + 1);
    read_all(0, words, request.word_bytes);
    const int32_t child = fork();
    if (child == 0) exit(run_request(words, environment));
    free(words);
    int status = 0;
    if (write(answers, &child, sizeof child) != (ssize_t)sizeof child) _exit(0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const int32_t answer = status;
    if (write(answers, &answer, sizeof answer) != (ssize_t)sizeof answer) _exit(0);
  }
}

int __libc_start_main(int (*main)(int, char**, char**), int count, char** arguments, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void* stack) {
  REAL(int, "__libc_start_main", int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void),
       void (*)(void), void*);
  real_main = main;
  return real(serve, count, arguments, init, fini, end, stack);
}
