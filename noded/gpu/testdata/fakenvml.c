/* A libnvidia-ml.so.1 for tests: COUNT GPUs of one kind, joined in pairs by two NVLinks each (or all through a switch with
 * -DSWITCH), as far as the functions go that noded/gpu calls. -DCRASH, -DHANG, -DNODRIVER and -DOLD are drivers in trouble.
 * -DTOPOLOGY tells of buses and CPUs, -DMIG divides GPU 1, -DLOST and -DGONE=I are drivers with one GPU in trouble. What the monitor sees is changed while it runs by files in the directory
 * FAKENVML: "lost", "reset", "ecc", "remap", "retire" and "action" hold a GPU's index and, for ecc, remap and action, a number; "xid" holds index, number and
 * GPU instance and is removed when it is told; "crash" and "hang" are removed before the driver does so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef COUNT
#define COUNT 4
#endif
#ifndef IDLE /* nobody uses them */
#define IDLE 0
#endif

typedef struct { int index, mig; } dev; /* mig: of GPU 1, counted from 1 */
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
static dev devs[COUNT];

int nvmlInit_v2(void) {
#ifdef NODRIVER
	return 9;
#endif
	for (int i = 0; i < COUNT; i++) devs[i].index = i;
	return 0;
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return r == 999 ? "Unknown Error" : "Some Error"; }
int nvmlDeviceGetCount_v2(unsigned *n) {
#ifdef CRASH
	fprintf(stderr, "driver: about to crash\n");
	abort();
#endif
#ifdef HANG
	for (;;) pause();
#endif
	*n = COUNT;
	return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev **d) {
	if (i >= COUNT) return 2;
#ifdef GONE
	if (i == GONE) return 15;
#endif
	*d = &devs[i];
	return 0;
}
int nvmlDeviceGetName(dev *d, char *s, unsigned n) {
#ifdef MIGNAMES
	if (d->mig) { snprintf(s, n, "NVIDIA H100 80GB HBM3 MIG %s", d->mig == 1 ? "1g.10gb" : "2c.3g.40gb"); return 0; }
#endif
	(void)d;
	snprintf(s, n, "NVIDIA H100 80GB HBM3");
	return 0;
}
int nvmlDeviceGetUUID(dev *d, char *s, unsigned n) {
#ifdef LOST
	if (d->index == 2) return 999;
#endif
	if (d->mig) { snprintf(s, n, "MIG-00000000-0000-0000-0000-%012d", d->mig); return 0; }
	snprintf(s, n, "GPU-00000000-0000-0000-0000-%012d", d->index);
	return 0;
}
int nvmlDeviceGetMinorNumber(dev *d, unsigned *m) { *m = COUNT - 1 - d->index; return 0; }
int nvmlDeviceGetMemoryInfo(dev *d, memory *m) { (void)d; m->total = 81559ull << 20; m->free = m->total; m->used = 0; return 0; }
static void bus(int i, pci *p) { memset(p, 0, sizeof *p); snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", 0x1a + i); }
int nvmlDeviceGetPciInfo_v3(dev *d, pci *p) { bus(d->index, p); return 0; }
#ifndef OLD
int nvmlDeviceGetNvLinkState(dev *d, unsigned l, unsigned *on) { (void)d; *on = l < 2; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev *d, unsigned l, pci *p) {
	(void)l;
#ifdef SWITCH
	bus(0x60, p);
#else
	bus(d->index ^ 1, p);
#endif
	return 0;
}
int nvmlDeviceGetP2PStatus(dev *a, dev *b, int index, int *status) { (void)index; *status = a == b ? 6 : 0; return 0; }
#endif

/* holds reads up to three numbers of a control file; how many there are. */
static int holds(const char *name, int v[3]) {
	char path[512];
	const char *dir = getenv("FAKENVML");
	if (!dir) return 0;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "r");
	if (!f) return 0;
	int n = fscanf(f, "%d %d %d", &v[0], &v[1], &v[2]);
	fclose(f);
	return n < 0 ? 0 : n;
}
static int removed(const char *name) {
	char path[512];
	const char *dir = getenv("FAKENVML");
	if (!dir) return 0;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return unlink(path) == 0;
}
static int of(const char *name, dev *d, int v[3]) { return holds(name, v) > 0 && v[0] == d->index; }

typedef struct { unsigned gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(dev *d, rates *u) {
	int v[3];
	if (removed("crash")) { fprintf(stderr, "driver: about to exit\n"); _exit(3); }
	if (removed("hang")) for (;;) pause();
	if (of("lost", d, v)) return 15;
	if (of("reset", d, v)) return 16;
	u->gpu = 10 + d->index;
	u->memory = 20 + d->index;
	return 0;
}
#ifndef OLD
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2;
typedef struct { unsigned pid; unsigned long long mem; unsigned gi, ci; } process;
typedef struct { dev *device; unsigned long long type, data; unsigned gi, ci; } event;
static int set;
int nvmlDeviceGetMemoryInfo_v2(dev *d, memory2 *m) {
	if (d->mig) { m->total = 9984ull << 20; m->reserved = 0; m->used = (unsigned long long)(100 * d->mig) << 20; m->free = m->total - m->used; return m->version == (sizeof *m | 2u << 24) ? 0 : 25; }
	m->total = 81559ull << 20; m->reserved = 500ull << 20; m->used = (unsigned long long)(1000 + d->index) << 20; m->free = m->total - m->used - m->reserved;
	return m->version == (sizeof *m | 2u << 24) ? 0 : 25;
}
#ifdef TEMPV /* what drivers are to have instead */
typedef struct { unsigned version; int sensor, celsius; } temperature;
int nvmlDeviceGetTemperatureV(dev *d, temperature *t) { t->celsius = 40 + d->index; return t->sensor ? 2 : t->version == (sizeof *t | 1u << 24) ? 0 : 25; }
#else
int nvmlDeviceGetTemperature(dev *d, int sensor, unsigned *t) { *t = 40 + d->index; return sensor ? 2 : 0; }
#endif
int nvmlDeviceGetPowerUsage(dev *d, unsigned *mw) { *mw = 300000 + d->index; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(dev *d, unsigned long long *mj) { *mj = 5000000000ull + d->index; return 0; }
static int list(unsigned *n, process *p, const process *have, unsigned count) {
	unsigned room = *n;
	*n = count;
	if (room < count) return 7;
	memcpy(p, have, count * sizeof *p);
	return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(dev *d, unsigned *n, process *p) {
	static const process have[] = {{200, 300ull << 20, 1, 0}, {100, 64ull << 20, -1, -1}, {200, 100ull << 20, 2, 0}, {300, -1ull, -1, -1}};
	static const process mig[] = {{500, 90ull << 20, 9, 0}};
	return d->mig == 1 ? list(n, p, mig, 1) : list(n, p, have, d->index == 0 && !IDLE ? 4 : 0);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(dev *d, unsigned *n, process *p) {
	static const process have[] = {{100, 64ull << 20, -1, -1}, {400, 8ull << 20, -1, -1}};
	return list(n, p, have, d->index == 0 && !IDLE ? 2 : 0);
}
int nvmlDeviceGetTotalEccErrors(dev *d, int type, int counter, unsigned long long *n) {
	int v[3];
	*n = of("ecc", d, v) ? v[1] : 0;
	return type == 1 && counter == 0 ? 0 : 2;
}
#ifndef RETIRES
int nvmlDeviceGetRemappedRows(dev *d, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
	int v[3];
	*c = *u = *pending = *failed = 0;
	if (of("remap", d, v)) { *pending = v[1] & 1; *failed = v[1] >> 1 & 1; }
	return 0;
}
#endif
int nvmlDeviceGetRetiredPagesPendingStatus(dev *d, int *pending) { int v[3]; *pending = of("retire", d, v); return 0; }
typedef struct { unsigned id, scope; long long at, latency; int type, ret; union { unsigned u; unsigned long long l; } value; } field;
int nvmlDeviceGetFieldValues(dev *d, int n, field *f) {
	int v[3];
	for (int i = 0; i < n; i++) { f[i].ret = f[i].id == 230 ? 0 : 3; f[i].type = 1; f[i].value.l = 0; f[i].value.u = of("action", d, v) ? v[1] : 0;
		if (f[i].id == 82) { f[i].ret = 0; f[i].value.u = 50 + d->index; } }
	return 0;
}
int nvmlDeviceGetClockInfo(dev *d, int kind, unsigned *mhz) { *mhz = 1000 * kind + d->index; return kind == 1 || kind == 2 ? 0 : 2; }
int nvmlEventSetCreate(int **s) { *s = &set; return 0; }
int nvmlDeviceGetSupportedEventTypes(dev *d, unsigned long long *t) { (void)d; *t = 8 | 4; return 0; }
int nvmlDeviceRegisterEvents(dev *d, unsigned long long t, int *s) { (void)d; (void)s; return t == 8 ? 0 : 3; }
int nvmlEventSetWait_v2(int *s, event *e, unsigned ms) {
	(void)s;
	for (unsigned i = 0; i < ms / 10; i++) {
		int v[3], n = holds("xid", v);
		if (n >= 2 && removed("xid")) {
			e->device = &devs[v[0]]; e->type = 8; e->data = v[1]; e->gi = n == 3 ? (unsigned)v[2] : -1u; e->ci = -1u;
			return 0;
		}
		usleep(10000);
	}
	return 10;
}
#endif

#ifdef TOPOLOGY
int nvmlDeviceGetTopologyCommonAncestor(dev *a, dev *b, int *level) {
	*level = a->index / 2 == b->index / 2 ? 10 : 50;
	return 0;
}
int nvmlDeviceGetCpuAffinity(dev *d, unsigned n, unsigned long *set) {
	memset(set, 0, n * sizeof *set);
	set[0] = d->index < 2 ? 0xfful : 0x8000000000000f00ul;
	set[1] = d->index < 2 ? 0 : 1;
	return 0;
}
#endif

#ifdef MIG
typedef struct { unsigned sms, copy, dec, enc, jpeg, ofa, gi_slices, ci_slices; unsigned long long mib; } attributes;
static dev migs[] = {{1, 1}, {1, 2}};
int nvmlDeviceGetMigMode(dev *d, unsigned *now, unsigned *pending) {
	if (d->index == 3) return 3;
	*now = *pending = d->index == 1 || d->index == 2;
	return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(dev *d, unsigned *n) { (void)d; *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(dev *d, unsigned i, dev **m) {
	if (d->index != 1 || (i != 0 && i != 3)) return 6;
	*m = &migs[i == 3];
	return 0;
}
int nvmlDeviceGetGpuInstanceId(dev *d, unsigned *id) { *id = d->mig == 1 ? 9 : 2; return 0; }
int nvmlDeviceGetComputeInstanceId(dev *d, unsigned *id) { *id = d->mig - 1; return 0; }
int nvmlDeviceGetAttributes_v2(dev *d, attributes *a) {
	memset(a, 0, sizeof *a);
	a->gi_slices = d->mig == 1 ? 1 : 3;
	a->ci_slices = d->mig == 1 ? 1 : 2;
	a->mib = d->mig == 1 ? 9984 : 40192;
	return 0;
}
#endif
