import { cpus, release, totalmem, type } from "node:os";
import process from "node:process";
import { runtimeName } from "../base/runtime.ts";
import { VERSION } from "../base/version.ts";
import type { MachineResult } from "./result.ts";

/** What the measurement runs on. */
export function machineInfo(): MachineResult {
  const cores = cpus();
  const runtime = process.versions[runtimeName] ?? "";
  return {
    cores: cores.length,
    cpu: cores[0]?.model.trim() ?? "",
    memory: totalmem(),
    system: `${type()} ${release()}`,
    program: `toolmux ${VERSION}, ${runtimeName} ${runtime}`,
  };
}
