import { createRequire } from "node:module";
import { arch, cpus, loadavg, release, totalmem, type } from "node:os";
import process from "node:process";

/** What the figures depend on, and nothing that says whose machine it is. */
export interface Machine {
  readonly cores: number;
  readonly cpu: string;
  /** Bytes. */
  readonly memory: number;
  readonly system: string;
  readonly runtimes: Readonly<Record<string, string>>;
  /** What others were doing here when the run began: the load average of the last minute. */
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

/** The version of a package that is installed here. */
export function versionOf(name: string): string {
  const require = createRequire(import.meta.url);
  return (require(`../node_modules/${name}/package.json`) as { version: string }).version;
}
