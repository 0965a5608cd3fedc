import { createRequire } from "node:module";
import { arch, cpus, loadavg, release, totalmem, type } from "node:os";
import process from "node:process";

/** The properties of the machine on which the figures depend. They do not identify the machine. */
export interface Machine {
  readonly cores: number;
  readonly cpu: string;
  /** Memory, in bytes. */
  readonly memory: number;
  readonly system: string;
  readonly runtimes: Readonly<Record<string, string>>;
  /** The load average of the last minute at the start of the run, which shows the load of other programs. */
  readonly load: number;
}

export function describeMachine(): Machine {
  const [first] = cpus();
  return {
    cores: cpus().length,
    cpu: first?.model ?? "unknown",
    memory: totalmem(),
    system: `${type()} ${release()} ${arch()}`,
    runtimes: {
      bun: process.versions["bun"] ?? "none",
      "MCP SDK": versionOf("@modelcontextprotocol/server"),
    },
    load: loadavg()[0] ?? 0,
  };
}

/** The version of a package in node_modules. */
export function versionOf(name: string): string {
  const require = createRequire(import.meta.url);
  return (require(`../node_modules/${name}/package.json`) as { version: string }).version;
}
