/* A stand-in for libnvidia-ml of a machine with two A100s: as much of NVML as `nvidia-ctk cdi generate` asks, and no
 * more. What is not here ends the program that asks with a symbol lookup error. Built with -DDRIVER="580.126.09". */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, MISMATCH = 18, GPUS = 2 };
typedef void *Gpu;
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static long number(Gpu gpu) { return (long)gpu; }

/* Like the real one, it refuses where no driver runs, or another one than it belongs to. */
int nvmlInit_v2(void) {
  char line[256] = "";
  FILE *file = fopen("/proc/driver/nvidia/version", "r");
  if (!file) return DRIVER_NOT_LOADED;
  if (!fgets(line, sizeof line, file)) line[0] = 0;
  fclose(file);
  return strstr(line, " " DRIVER " ") ? SUCCESS : MISMATCH;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) {
  return error == MISMATCH ? "Driver/library version mismatch" : error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "stand-in";
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "%s", DRIVER); return SUCCESS; }
int nvmlDeviceGetCount(unsigned *count) { *count = GPUS; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { return nvmlDeviceGetCount(count); }
int nvmlDeviceGetHandleByIndex(unsigned index, Gpu *gpu) {
  *gpu = (Gpu)(long)(index + 1);
  return index < GPUS ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu *gpu) { return nvmlDeviceGetHandleByIndex(index, gpu); }
int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu *gpu) {
  return nvmlDeviceGetHandleByIndex((unsigned)(uuid[strlen(uuid) - 1] - '1'), gpu);
}
int nvmlDeviceGetIndex(Gpu gpu, unsigned *index) { *index = (unsigned)number(gpu) - 1; return SUCCESS; }
int nvmlDeviceGetMinorNumber(Gpu gpu, unsigned *minor) { return nvmlDeviceGetIndex(gpu, minor); }
int nvmlDeviceGetUUID(Gpu gpu, char *text, unsigned size) {
  snprintf(text, size, "GPU-5a1d0000-0000-4000-8000-00000000000%ld", number(gpu));
  return SUCCESS;
}
int nvmlDeviceGetName(Gpu gpu, char *text, unsigned size) { (void)gpu; snprintf(text, size, "NVIDIA A100-SXM4-40GB"); return SUCCESS; }
int nvmlDeviceGetMigMode(Gpu gpu, unsigned *now, unsigned *pending) { (void)gpu; (void)now; (void)pending; return NOT_SUPPORTED; }
int nvmlDeviceGetMaxMigDeviceCount(Gpu gpu, unsigned *count) { (void)gpu; *count = 0; return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(Gpu gpu, struct pci *info) {
  memset(info, 0, sizeof *info);
  info->bus = (unsigned)number(gpu);
  info->id = 0x20b010de;
  snprintf(info->legacy, sizeof info->legacy, "0000:0%ld:00.0", number(gpu));
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:0%ld:00.0", number(gpu));
  return SUCCESS;
}
