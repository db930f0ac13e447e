//go:build cgo && linux

package steppmix

// lib_cgo.go loads libpmix and calls it. No header of it is needed: what follows is the part of its interface that has
// been the same since version 3.

/*
#cgo LDFLAGS: -ldl -lpthread
#include <dlfcn.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { t_bool = 1, t_string = 3, t_u16 = 13, t_u32 = 14, t_info = 24, t_array = 39, t_rank = 40 };
enum { space_len = 256, key_len = 512, max_ranks = 1 << 20 };
enum { err_param = -27, err_support = -47 };
#define every_rank ((uint32_t)-2)

typedef struct { char space[space_len]; uint32_t rank; } proc_t;
typedef struct { uint16_t type; size_t size; void *array; } array_t;
typedef struct {
	uint16_t type;
	union { bool flag; char *text; uint16_t u16; uint32_t u32;
		array_t *array; uint64_t words[3]; } data;
} value_t;
typedef struct { char key[key_len]; uint32_t flags; value_t value; } info_t;

typedef void (*op_fn)(int status, void *data);
typedef void (*release_fn)(void *data);
typedef void (*modex_fn)(int status, const char *blob, size_t size, void *data, release_fn release, void *release_data);
typedef void (*found_fn)(int status, char *blob, size_t size, void *data);

extern int gbatchConnected(uint32_t rank, void *fn, void *data);
extern int gbatchFinalized(uint32_t rank, void *fn, void *data);
extern int gbatchAbort(uint32_t rank, int status, char *text, void *fn, void *data);
extern int gbatchFence(uint32_t *ranks, size_t n, void *blob, size_t size, void *fn, void *data);
extern int gbatchAsk(uint32_t rank, void *fn, void *data);
extern void gbatchFound(uint64_t id, int status, void *blob, size_t size);
extern void gbatchSpawn(uint32_t rank);

static struct {
	int (*init)(void *module, info_t *info, size_t n);
	int (*register_nspace)(const char *space, int local, info_t *info, size_t n, op_fn fn, void *data);
	int (*register_client)(const proc_t *proc, uint32_t uid, uint32_t gid, void *object, op_fn fn, void *data);
	int (*setup_fork)(const proc_t *proc, char ***env);
	int (*dmodex_request)(const proc_t *proc, found_fn fn, void *data);
	const char *(*error_string)(int status);
} lib;

static char own_space[space_len];

// load gives 0, 1 if the library is not there, and 2 if it lacks a function.
static int load(void) {
	void *h = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
	if (!h)
		return 1;
	*(void **)&lib.init = dlsym(h, "PMIx_server_init");
	*(void **)&lib.register_nspace = dlsym(h, "PMIx_server_register_nspace");
	*(void **)&lib.register_client = dlsym(h, "PMIx_server_register_client");
	*(void **)&lib.setup_fork = dlsym(h, "PMIx_server_setup_fork");
	*(void **)&lib.dmodex_request = dlsym(h, "PMIx_server_dmodex_request");
	*(void **)&lib.error_string = dlsym(h, "PMIx_Error_string");
	return lib.init && lib.register_nspace && lib.register_client && lib.setup_fork && lib.dmodex_request &&
		lib.error_string && dlsym(h, "PMIx_Get_credential") ? 0 : 2; // version 2 has no such function
}

static const char *why(int status) { return lib.error_string(status); }
static const char *load_error(void) { const char *e = dlerror(); return e ? e : ""; }

static bool ours(const proc_t *p) { return strncmp(p->space, own_space, space_len) == 0; }

// What the library calls.
static int on_connected(const proc_t *p, void *object, op_fn fn, void *data) {
	return ours(p) ? gbatchConnected(p->rank, (void *)fn, data) : err_param;
}
static int on_finalized(const proc_t *p, void *object, op_fn fn, void *data) {
	return ours(p) ? gbatchFinalized(p->rank, (void *)fn, data) : err_param;
}
static int on_abort(const proc_t *p, void *object, int status, const char *text, proc_t *procs, size_t n, op_fn fn,
		void *data) {
	return ours(p) ? gbatchAbort(p->rank, status, (char *)text, (void *)fn, data) : err_param;
}
static int on_fence(const proc_t *procs, size_t n, const info_t *info, size_t ninfo, char *blob, size_t size,
		modex_fn fn, void *data) {
	if (n > max_ranks)
		return err_param;
	uint32_t *ranks = calloc(n ? n : 1, sizeof *ranks);
	if (!ranks)
		return err_param;
	size_t k = 0;
	for (size_t i = 0; i < n; i++) {
		if (!ours(&procs[i])) {
			free(ranks);
			return err_support;
		}
		if (procs[i].rank == every_rank) {
			k = 0;
			break;
		}
		ranks[k++] = procs[i].rank;
	}
	int rc = gbatchFence(ranks, k, blob, size, (void *)fn, data);
	free(ranks);
	return rc;
}
static int on_modex(const proc_t *p, const info_t *info, size_t n, modex_fn fn, void *data) {
	return ours(p) ? gbatchAsk(p->rank, (void *)fn, data) : err_support;
}
static int on_spawn(const proc_t *p, const info_t *info, size_t ninfo, const void *apps, size_t napps, void *fn,
		void *data) {
	gbatchSpawn(p->rank);
	return err_support;
}
static void on_found(int status, char *blob, size_t size, void *data) {
	gbatchFound((uint64_t)(uintptr_t)data, status, blob, size);
}

// The functions of a server, by their places; versions have more than those that are used here, which stay 0.
enum { f_connected = 0, f_finalized = 1, f_abort = 2, f_fence = 3, f_modex = 4, f_spawn = 8, f_all = 64 };
static void *module[f_all];

static int init(const char *space, info_t *info, size_t n) {
	strncpy(own_space, space, space_len - 1);
	module[f_connected] = (void *)on_connected;
	module[f_finalized] = (void *)on_finalized;
	module[f_abort] = (void *)on_abort;
	module[f_fence] = (void *)on_fence;
	module[f_modex] = (void *)on_modex;
	module[f_spawn] = (void *)on_spawn;
	return lib.init(module, info, n);
}

// Registrations are asked for, and waited for.
typedef struct { sem_t sem; int status; } waiting_t;
static void on_registered(int status, void *data) {
	waiting_t *w = data;
	w->status = status;
	sem_post(&w->sem);
}
// settle waits if the library takes its time; -157 is its word for having done it at once.
static int settle(waiting_t *w, int rc) {
	if (rc == -157)
		rc = 0;
	else if (rc == 0) {
		while (sem_wait(&w->sem) != 0) {}
		rc = w->status;
	}
	sem_destroy(&w->sem);
	return rc;
}
static int register_space(int local, info_t *info, size_t n) {
	waiting_t w = {.status = 0};
	sem_init(&w.sem, 0, 0);
	return settle(&w, lib.register_nspace(own_space, local, info, n, on_registered, &w));
}
static void name(proc_t *p, uint32_t rank) {
	memset(p, 0, sizeof *p);
	memcpy(p->space, own_space, space_len);
	p->rank = rank;
}
static int register_task(uint32_t rank, uint32_t uid, uint32_t gid) {
	waiting_t w = {.status = 0};
	proc_t p;
	name(&p, rank);
	sem_init(&w.sem, 0, 0);
	return settle(&w, lib.register_client(&p, uid, gid, NULL, on_registered, &w));
}
static int variables(uint32_t rank, char ***env) {
	proc_t p;
	name(&p, rank);
	*env = NULL;
	return lib.setup_fork(&p, env);
}
static int find(uint32_t rank, uint64_t id) {
	proc_t p;
	name(&p, rank);
	return lib.dmodex_request(&p, on_found, (void *)(uintptr_t)id);
}

// What the library is told.
static void call_op(uintptr_t fn, uintptr_t data) {
	if (fn)
		((op_fn)fn)(0, (void *)data);
}
static void call_modex(uintptr_t fn, uintptr_t data, int status, void *blob, size_t size) {
	if (fn)
		((modex_fn)fn)(status, blob, size, (void *)data, free, blob);
	else
		free(blob);
}

// Infos.
static info_t *infos(size_t n) { return calloc(n, sizeof(info_t)); }
static void set_key(info_t *i, const char *key, uint16_t type) {
	strncpy(i->key, key, key_len - 1);
	i->value.type = type;
}
static void set_text(info_t *i, size_t at, const char *key, char *text) {
	set_key(&i[at], key, t_string);
	i[at].value.data.text = text;
}
static void set_number(info_t *i, size_t at, const char *key, uint16_t type, uint32_t n) {
	set_key(&i[at], key, type);
	switch (type) {
	case t_bool:
		i[at].value.data.flag = n;
		break;
	case t_u16:
		i[at].value.data.u16 = n;
		break;
	default:
		i[at].value.data.u32 = n;
	}
}
static void set_array(info_t *i, size_t at, const char *key, info_t *of, size_t n) {
	array_t *a = calloc(1, sizeof *a);
	a->type = t_info;
	a->size = n;
	a->array = of;
	set_key(&i[at], key, t_array);
	i[at].value.data.array = a;
}
static void drop(info_t *i, size_t n) {
	for (size_t k = 0; k < n; k++) {
		if (i[k].value.type == t_string)
			free(i[k].value.data.text);
		if (i[k].value.type == t_array) {
			drop(i[k].value.data.array->array, i[k].value.data.array->size);
			free(i[k].value.data.array);
		}
	}
	free(i);
}
static char *entry(char **env, size_t i) { return env ? env[i] : NULL; }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

// errNoLibrary says what is missing, and what else there is.
var errNoLibrary = errors.New("--mpi=pmix needs libpmix.so.2 there (Debian's package libpmix2, EL's pmix): install " +
	"it on all nodes, start the program with its own mpirun in the job, or a program of MPICH with --mpi=pmi2")

func callOf(fn, data unsafe.Pointer) call { return call{uintptr(fn), uintptr(data)} }

// done tells the library that something was heard. It does not expect that before its own call has returned.
func (c call) done() { go C.call_op(C.uintptr_t(c.fn), C.uintptr_t(c.data)) }

// answer gives the library the data that it wanted.
func (c call) answer(status int32, data []byte) {
	C.call_modex(C.uintptr_t(c.fn), C.uintptr_t(c.data), C.int(status), C.CBytes(data), C.size_t(len(data)))
}

// info is one thing that the library is told: a string, bool, uint16, uint32, rank or []info.
type info struct {
	key   string
	value any
}

type rank uint32

// infos makes the library's list of them.
func infos(list []info) (*C.info_t, C.size_t) {
	out := C.infos(C.size_t(max(len(list), 1)))
	for i, x := range list {
		at, key := C.size_t(i), C.CString(x.key)
		switch v := x.value.(type) {
		case string:
			C.set_text(out, at, key, C.CString(v))
		case bool:
			C.set_number(out, at, key, C.t_bool, 1)
		case uint16:
			C.set_number(out, at, key, C.t_u16, C.uint32_t(v))
		case uint32:
			C.set_number(out, at, key, C.t_u32, C.uint32_t(v))
		case rank:
			C.set_number(out, at, key, C.t_rank, C.uint32_t(v))
		case []info:
			sub, n := infos(v)
			C.set_array(out, at, key, sub, n)
		}
		C.free(unsafe.Pointer(key))
	}
	return out, C.size_t(len(list))
}

func failed(what string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	return fmt.Errorf("--mpi=pmix: libpmix could not %s: %s", what, C.GoString(C.why(rc)))
}

// start loads the library, makes it a server, and tells it of the step and of the tasks here.
func (s *server) start() error {
	switch C.load() {
	case 1:
		text := C.GoString(C.load_error())
		if text == "" || strings.Contains(text, "No such file") {
			return errNoLibrary
		}
		return fmt.Errorf("libpmix.so.2 could not be loaded: %s", text)
	case 2:
		return errors.New("its libpmix.so.2 is older than PMIx 3: install PMIx 3 to 5 there")
	}
	serving = s
	node := &s.plan.Nodes[s.here]
	list, n := infos([]info{{"pmix.srv.nspace", s.plan.Space + ".server"}, {"pmix.srv.rank", rank(s.here)},
		{"pmix.srvr.tmpdir", s.dir}, {"pmix.sys.tmpdir", s.dir}, {"pmix.hname", node.Name}})
	space := C.CString(s.plan.Space)
	defer C.free(unsafe.Pointer(space))
	rc := C.init(space, list, n)
	C.drop(list, n)
	if err := failed("start", rc); err != nil {
		return err
	}
	list, n = infos(s.facts())
	rc = C.register_space(C.int(len(s.ranks)), list, n)
	C.drop(list, n)
	if err := failed("take the step", rc); err != nil {
		return err
	}
	for _, r := range s.ranks {
		if err := failed("take a task", C.register_task(C.uint32_t(r), C.uint32_t(os.Getuid()),
			C.uint32_t(os.Getgid()))); err != nil {
			return err
		}
	}
	return nil
}

// facts are what the library, and by it the tasks, are told of the step.
func (s *server) facts() []info {
	p := s.plan
	size := uint32(p.Size())
	var names, maps []string
	apps := map[int32]uint32{}
	first := map[int32]int32{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		names, maps = append(names, n.Name), append(maps, commas(n.Ranks))
		apps[n.App] += uint32(len(n.Ranks))
		for _, r := range n.Ranks {
			if at, ok := first[n.App]; !ok || r < at {
				first[n.App] = r
			}
		}
	}
	here := &p.Nodes[s.here]
	out := []info{
		{"pmix.jobid", p.Space}, {"pmix.nspace", p.Space}, {"pmix.univ.size", size}, {"pmix.job.size", size},
		{"pmix.max.size", size}, {"pmix.job.napps", uint32(len(apps))}, {"pmix.num.nodes", uint32(len(p.Nodes))},
		{"pmix.nmap", strings.Join(names, ",")}, {"pmix.pmap", strings.Join(maps, ";")},
		{"pmix.nlist", strings.Join(names, ",")}, {"pmix.offset", rank(0)},
		{"pmix.app.size", apps[here.App]}, {"pmix.node.size", uint32(len(here.Ranks))},
		{"pmix.local.size", uint32(len(here.Ranks))}, {"pmix.lpeers", commas(here.Ranks)},
		{"pmix.lldr", rank(here.Ranks[0])}, {"pmix.aldr", rank(first[here.App])},
		{"pmix.tmpdir", s.dir}, {"pmix.nsdir", s.jobDir()}, {"pmix.tdir.rmclean", true},
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for local, r := range n.Ranks {
			t := []info{{"pmix.rank", rank(r)}, {"pmix.appnum", uint32(n.App)}, {"pmix.grank", rank(r)},
				{"pmix.apprank", rank(r - first[n.App])}, {"pmix.lrank", uint16(local)}, {"pmix.nrank", uint16(local)},
				{"pmix.nodeid", uint32(i)}, {"pmix.hname", n.Name}}
			if int32(i) == s.here {
				t = append(t, info{"pmix.pdir", s.taskDir(r)})
			}
			out = append(out, info{"pmix.pdata", t})
		}
	}
	return out
}

func commas(ranks []int32) string {
	var b strings.Builder
	for i, r := range ranks {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(r)))
	}
	return b.String()
}

// variables are those that lead a task to the library.
func (s *server) variables(r int32) ([]string, error) {
	var env **C.char
	if err := failed("make a task's variables", C.variables(C.uint32_t(r), &env)); err != nil {
		return nil, err
	}
	var out []string
	for i := C.size_t(0); ; i++ {
		e := C.entry(env, i)
		if e == nil {
			return out, nil
		}
		out = append(out, C.GoString(e))
	}
}

// find has the library look for a task's data, as soon as there is some.
func (s *server) find(id uint64, r int32) {
	if rc := C.find(C.uint32_t(r), C.uint64_t(id)); rc != 0 {
		s.found(id, int32(rc), nil)
	}
}
